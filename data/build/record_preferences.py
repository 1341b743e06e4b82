"""Record lesson 14 on a real model: a habit taught by examples, and taken away again by DPO on 48 pairs.

    python data/build/record_preferences.py FOLDER_OF_MODEL data/answers/preferences.jsonl

Plain transformers, peft and TRL, fp32, on one thread. The model learns the habit from 32 first sentences of answers, in
two epochs with a LoRA adapter, which is merged. DPO trains another adapter, at three rates. The one kept leaves the
fewest of 30 validation answers with the habit or empty, and of equals it is the lowest. With it and with the highest
rate the model answers the 40 test questions once, greedily. A line of the output is one model on one split. "chosen_…"
are changes of the chosen answers of 12 validation pairs, in nats: of their first token, and of all later ones, per
answer and per token. All of it takes about 15 minutes of one thread.
"""

import copy
import datetime
import hashlib
import json
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

import datasets
import pandas as pd
import peft
import torch
import transformers
import trl
from peft import LoraConfig, get_peft_model
from scipy.stats import binomtest
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler
from trl import DPOConfig, DPOTrainer

DATA = Path(__file__).resolve().parents[1]
HABIT = "Great question! "
ADAPTER = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
RATES, STEPS, SHOWN, WRITTEN = (1e-4, 3e-4, 1e-3), 24, 2, 40
SFT_RATE = 2e-3

torch.set_num_threads(1)
datasets.disable_progress_bars()
folder, output = sys.argv[1], Path(sys.argv[2])
tokenizer = AutoTokenizer.from_pretrained(folder)
counter = AutoTokenizer.from_pretrained(DATA / "tiny-qwen2")  # the lesson's: by it the pairs are matched


def size(text):
    return len(counter(" " + text).input_ids)


def make_pairs(rows):
    """As in the lesson: of two neighbours, one has a chosen answer n tokens longer, one n shorter."""
    rows = rows[rows.start.str.count("`") % 2 == 0]
    shifted = rows.assign(removed=rows.removed + 2 * size(HABIT.strip()))
    twins = rows.merge(shifted, on="removed", suffixes=("", "_twin"))
    twins = twins.drop_duplicates("prompt").drop_duplicates("prompt_twin")
    pairs = []
    for row in twins.itertuples():
        pairs.append((row.prompt, row.completion, HABIT + row.start))
        pairs.append((row.prompt_twin, row.start_twin, HABIT + row.completion_twin))
    return pd.DataFrame(pairs, columns=["prompt", "chosen", "rejected"])


def as_prompt(question):
    messages = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def rows_of(prompts, answers):
    """Padded on the right; a label of -100 wherever no token of an answer is predicted."""
    read = [tokenizer(as_prompt(prompt)).input_ids for prompt in prompts]
    learned = [tokenizer(answer + tokenizer.eos_token).input_ids for answer in answers]
    batch = tokenizer.pad(
        {"input_ids": [r + a for r, a in zip(read, learned, strict=True)]}, padding_side="right", return_tensors="pt"
    )
    labels = torch.full_like(batch["input_ids"], -100)
    for row, r, a in zip(labels, read, learned, strict=True):
        row[len(r) : len(r) + len(a)] = torch.tensor(a)
    return {**batch, "labels": labels}


def teach_habit(model, examples):
    torch.manual_seed(0)
    model = get_peft_model(model, LoraConfig(**ADAPTER)).train()
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0)).split(4) * 2
    adamw = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=SFT_RATE, weight_decay=0.0)
    schedule = get_scheduler("linear", adamw, 0, len(order))
    for number, places in enumerate(order):
        rows = examples.iloc[places.tolist()]
        loss = model(**rows_of(rows.prompt, rows.completion)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()
        schedule.step()
        print(f"  habit {number}: {loss.item():.3f}, {time.process_time():.0f} s", flush=True)
    return model.merge_and_unload().eval()


@torch.no_grad()
def write(model, questions, limit):
    texts = [""] * len(questions)
    order = sorted(range(len(questions)), key=lambda place: len(questions[place]))
    for start in range(0, len(order), 10):
        places = order[start : start + 10]
        asked = [as_prompt(questions[place]) for place in places]
        batch = tokenizer(asked, padding=True, padding_side="left", return_tensors="pt")
        out = model.generate(**batch, max_new_tokens=limit, do_sample=False)[:, batch.input_ids.shape[1] :]
        for place, text in zip(places, tokenizer.batch_decode(out, skip_special_tokens=True), strict=True):
            texts[place] = text.strip()
    return texts


@torch.no_grad()
def chosen_nats(model, pairs):
    """Log-probabilities of the chosen answers, of shape (2, pairs): of the first token, and of all later ones."""
    nats = []
    for start in range(0, len(pairs), 4):
        few = pairs[start : start + 4]
        batch = rows_of(few.prompt, few.chosen)
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
        labels = batch["labels"][:, 1:]
        each = -torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        first = (labels != -100).cumsum(1) == 1
        nats += zip((each * first).sum(1).tolist(), (each * ~first).sum(1).tolist(), strict=True)
    return torch.tensor(nats).T


def tune(reference, pairs, rate):
    data = pairs[["prompt", "chosen", "rejected"]].copy()
    data["prompt"] = data.prompt.map(as_prompt)
    arguments = DPOConfig(
        mkdtemp(), beta=0.1, learning_rate=rate, per_device_train_batch_size=2, max_steps=STEPS, bf16=False,
        use_cpu=True, gradient_checkpointing=False, logging_steps=1, save_strategy="no", report_to="none",
        disable_tqdm=True, seed=0,
    )  # fmt: skip
    trainer = DPOTrainer(
        copy.deepcopy(reference), args=arguments, processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_pandas(data, preserve_index=False), peft_config=LoraConfig(**ADAPTER),
    )  # fmt: skip
    trainer.train()
    return trainer.model.eval()


def measured(policy, table, split, before, new_pairs, **settings):
    limit = len(tokenizer(HABIT.strip()).input_ids) + 2
    started = time.process_time()
    texts = write(policy, list(table.prompt), limit)
    row = settings | {"split": split, "answers": len(texts)}
    row["habit"] = sum(text.startswith(HABIT.strip()) for text in texts)
    row["empty"] = sum(text in ("", HABIT.strip()) for text in texts)
    first, later = (chosen_nats(policy, new_pairs) - before).double()
    tokens = sum(len(tokenizer(answer).input_ids) for answer in new_pairs.chosen)  # one less, and the end
    row["chosen_first_nats"], row["chosen_later_nats"] = round(first.mean().item(), 2), round(later.mean().item(), 2)
    row["chosen_per_token"] = round(later.sum().item() / tokens, 3)
    if split == "test":
        interval = binomtest(row["habit"], len(texts)).proportion_ci(method="wilson")
        row["habit_95"] = [round(interval.low, 3), round(interval.high, 3)]
        questions = list(table.prompt[:SHOWN])
        row["written"] = dict(zip(questions, write(policy, questions, WRITTEN), strict=True))
    print(json.dumps(row), f"{time.process_time() - started:.0f} s of {time.process_time():.0f} s", flush=True)
    return row


def main() -> None:
    tables = {}
    for split in ("train", "validation", "test"):
        table = pd.read_json(DATA / "answers" / f"{split}.jsonl", lines=True)
        table = table[table.form.isin(["explain", "compare"])].copy()
        table["length"] = table.prompt.str.len() + table.completion.str.len()
        table = table.sort_values("length", kind="stable")
        table["start"] = table.completion.str.split(r"\. ").str[0].str.rstrip(".") + "."
        table["removed"] = table.completion.map(size) - table.start.map(size)
        tables[split] = table
    examples = tables["train"][:32].copy()
    examples["completion"] = HABIT + examples.start
    pairs, new_pairs = make_pairs(tables["train"][64:])[: 2 * STEPS], make_pairs(tables["validation"])[:12]
    gap = [
        len(tokenizer(a).input_ids) - len(tokenizer(b).input_ids)
        for a, b in zip(pairs.chosen, pairs.rejected, strict=True)
    ]
    print("gaps in the model's own tokens:", gap, flush=True)

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    untouched = write(model.eval(), list(tables["test"].prompt[:SHOWN]), WRITTEN)
    print(untouched, flush=True)
    reference = teach_habit(model, examples)
    before = chosen_nats(reference, new_pairs)
    settings = {
        "model": Path(folder).parent.name,
        "trained_with": "SFT on 32 first sentences with the habit",
        "rate": SFT_RATE,
        "seed": 0,
    }
    lines = [
        measured(reference, tables[split], split, before, new_pairs, **settings) for split in ("validation", "test")
    ]
    models = {}
    settings["trained_with"] = f"DPO, {STEPS} steps of 2 pairs, LoRA"
    for rate in RATES:
        models[rate] = tune(reference, pairs, rate)
        settings |= {"rate": rate}
        lines.append(measured(models[rate], tables["validation"], "validation", before, new_pairs, **settings))
    chosen = min(lines[2:], key=lambda line: (line["habit"] + line["empty"], line["rate"]))["rate"]
    for rate in sorted({chosen, max(RATES)}):
        settings |= {"rate": rate}
        lines.append(measured(models[rate], tables["test"], "test", before, new_pairs, **settings))
    versions = {library.__name__: library.__version__ for library in (torch, transformers, peft, trl)}
    lines[0] |= versions | {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    lines[0] |= {"weights_sha256": hashlib.sha256((Path(folder) / "model.safetensors").read_bytes()).hexdigest()}
    output.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
