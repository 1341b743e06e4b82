"""Record what a real model makes of the bug reports in data/tickets: asked, shown examples, and fine-tuned.

    python data/build/record_tickets.py FOLDER_OF_MODEL data/tickets/runs [PATTERN]

Plain transformers and peft, one thread, fp32. Each run answers the 96 test reports once, greedily, and nothing is
chosen by them. `answers.csv` gets a row for each answer as it was written, `runs.csv` one for each run; seconds are
those of the processor, so a shared machine does not change them. Runs that are in the files already are not made
again; a pattern chooses runs by name, so that several processes can share the work.
"""

import csv
import datetime
import hashlib
import json
import random
import re
import sys
import time
from pathlib import Path

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch.optim.lr_scheduler import OneCycleLR
from transformers import AutoModelForCausalLM, AutoTokenizer

TICKETS = Path(__file__).resolve().parents[1] / "tickets"
FIELDS = ("crate", "version", "system", "kind")
TASK = (
    "Answer with JSON: crate, version, system (the operating system), kind (crash, wrong result, compile error, slow, "
    "documentation, feature request). null if not given."
)
SHOWN = ("t074", "t134", "t283")  # from training: short, of three kinds, one without a system
BATCH, LIMIT, HALF = 4, 60, 15  # rows in a step, tokens of an answer, blocks that stay as they are
# method, examples to train on, epochs, learning rate, seed, split of the answers; 72 steps each, one with 216
RUNS = [("untouched", 0, 0, 0.0, 0, "test"), ("shown 3", 0, 0, 0.0, 0, "test"), ("lora", 285, 3, 3e-3, 0, "test")]
for seed in range(3):
    RUNS += [("lora", *size, 3e-3, seed, "test") for size in ((285, 1), (24, 12), (72, 4))]
RUNS += [("lora", 64, 1, rate, 0, "validation") for rate in (1e-3, 2e-3, 5e-3, 1e-2)]


def read(split: str) -> list[dict]:
    lines = (TICKETS / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def answer_of(ticket: dict) -> str:
    return json.dumps({field: ticket[field] for field in FIELDS})


def marks(text: str, ticket: dict) -> dict[str, int]:
    """Whether an answer is a JSON object, which fields are right, and whether all are."""
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        answer = None
    answer = answer if isinstance(answer, dict) else {}
    right = {field: int(field in answer and answer[field] == ticket[field]) for field in FIELDS}
    return {"valid": int(bool(answer)), **right, "exact": int(all(right.values()))}


def prompt(tokenizer, report: str, shown: list[dict]) -> str:
    messages = [{"role": "system", "content": TASK}]
    for ticket in shown:
        messages.append({"role": "user", "content": ticket["report"]})
        messages.append({"role": "assistant", "content": answer_of(ticket)})
    messages.append({"role": "user", "content": report})
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def padded(tokenizer, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows padded on the left, so that all answers end together, and the mask that hides the padding."""
    width = max(map(len, rows))
    ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(row)) + row for row in rows])
    return ids, torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])


def examples_of(folder: str, tokenizer, tickets: list[dict]) -> list[dict]:
    """Of each report its answer in tokens, and all its tokens as the frozen lower half of the model leaves them."""
    bottom = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, num_hidden_layers=HALF).model
    bottom.norm = torch.nn.Identity()
    found = []
    for ticket in tickets:
        answer = [*tokenizer(answer_of(ticket)).input_ids, tokenizer.eos_token_id]
        row = tokenizer(prompt(tokenizer, ticket["report"], [])).input_ids + answer
        found.append({"row": row, "answer": answer})
    ordered = sorted(found, key=lambda example: len(example["row"]))
    for start in range(0, len(ordered), BATCH):
        few = ordered[start : start + BATCH]
        ids, mask = padded(tokenizer, [example["row"] for example in few])
        with torch.no_grad():
            states = bottom(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        for example, state in zip(few, states, strict=True):
            example["states"] = state[-len(example["row"]) :].clone()
    return found


def collate(tokenizer, examples: list[dict]) -> dict[str, object]:
    """A batch for the upper half. Labels cover the end of the rows, which is as much as the head computes."""
    ids, mask = padded(tokenizer, [example["row"] for example in examples])
    states = torch.zeros(*ids.shape, examples[0]["states"].shape[1])
    keep = max(len(example["answer"]) for example in examples) + 1
    labels = torch.full((len(examples), keep), -100)
    for row, example in enumerate(examples):
        states[row, -len(example["states"]) :] = example["states"]
        labels[row, -len(example["answer"]) :] = torch.tensor(example["answer"])
    return {"inputs_embeds": states, "attention_mask": mask, "labels": labels, "logits_to_keep": keep}


def tuned(model, tokenizer, examples: list[dict], epochs: int, rate: float, seed: int):
    """LoRA in the upper half of the blocks; the merged model and the loss of each step."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    upper = range(HALF, model.config.num_hidden_layers)
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    settings = LoraConfig(r=8, lora_alpha=16, target_modules=names, layers_to_transform=list(upper))
    adapted = get_peft_model(model, settings)
    blocks = model.model.layers
    model.model.layers = blocks[HALF:]  # the lower ones have been computed once, as nothing in them is trained
    batches = []
    for _ in range(epochs):
        order = draw.sample(examples, len(examples))
        groups = [order[start : start + 4 * BATCH] for start in range(0, len(order), 4 * BATCH)]
        order = [example for group in groups for example in sorted(group, key=lambda one: len(one["row"]))]
        epoch = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        batches += draw.sample(epoch, len(epoch))
    weights = [p for p in adapted.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    schedule = OneCycleLR(optimizer, rate, total_steps=len(batches), pct_start=0.2)
    losses = []
    adapted.train()
    for number, batch in enumerate(batches):
        loss = model(**collate(tokenizer, batch), use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        print(f"  step {number + 1} of {len(batches)}: {losses[-1]:.3f}, {time.process_time():.0f} s", flush=True)
    model.model.layers = blocks
    return adapted.eval().merge_and_unload(), losses


@torch.no_grad()
def write(model, tokenizer, prompts: list[str], size: int = 24) -> list[str]:
    """One answer a prompt, those of similar length together. What all prompts begin with is computed once."""
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
    rows = tokenizer(prompts).input_ids
    same = next(place for place, column in enumerate(zip(*rows, strict=False)) if len(set(column)) > 1)
    start_of_all = torch.tensor([rows[0][:same]])
    texts = [""] * len(prompts)
    for start in range(0, len(order), size):
        places = order[start : start + size]
        rest = tokenizer.pad({"input_ids": [rows[p][same:] for p in places]}, padding_side="left", return_tensors="pt")
        ids = torch.cat([start_of_all.expand(len(places), -1), rest.input_ids], 1)
        mask = torch.cat([torch.ones(len(places), same, dtype=torch.long), rest.attention_mask], 1)
        cache = model(start_of_all, use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(len(places))
        written = model.generate(
            input_ids=ids, attention_mask=mask, past_key_values=cache, max_new_tokens=LIMIT, do_sample=False
        )[:, ids.shape[1] :]
        for place, text in zip(places, tokenizer.batch_decode(written, skip_special_tokens=True), strict=True):
            texts[place] = text
        print(f"  {start + len(places)} answers, {time.process_time():.0f} s", flush=True)
    return texts


def rows_of(path: Path) -> list[dict]:
    return list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []


def append(path: Path, rows: list[dict]) -> None:
    fresh = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


def name_of(run: tuple) -> str:
    return "-".join(f"{part:g}" if isinstance(part, float) else str(part).replace(" ", "") for part in run)


def record(folder: str, output: Path, run: tuple) -> None:
    method, examples, epochs, rate, seed, split = run
    name = name_of(run)
    if any(row["run"] == name for row in rows_of(output / "runs.csv")):
        return
    print(name, flush=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, losses = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), []
    started = time.process_time()
    if method == "lora":
        drawn = random.Random(seed).sample(read("train"), examples)
        model, losses = tuned(model, tokenizer, examples_of(folder, tokenizer, drawn), epochs, rate, seed)
    trained = time.process_time() - started
    by_id = {ticket["id"]: ticket for ticket in read("train")}
    shown = [by_id[name] for name in SHOWN] if method == "shown 3" else []
    prompts = [prompt(tokenizer, t["report"], shown) for t in read(split)]
    mean_tokens = sum(len(ids) for ids in tokenizer(prompts).input_ids) / len(prompts)
    started = time.process_time()
    texts = write(model, tokenizer, prompts)
    seconds = time.process_time() - started
    answers = [
        {"run": name, "id": ticket["id"], "answer": text} | marks(text, ticket)
        for ticket, text in zip(read(split), texts, strict=True)
    ]
    append(output / "answers.csv", answers)
    row = {"run": name, "method": method, "examples": examples, "epochs": epochs, "steps": len(losses)}
    row |= {"learning_rate": rate, "seed": seed, "split": split, "prompt_tokens": round(mean_tokens, 1)}
    row |= {"train_seconds": round(trained, 1), "answer_seconds": round(seconds, 1)}
    row |= {"losses": " ".join(f"{loss:.3f}" for loss in losses), "torch": torch.__version__, "peft": peft.__version__}
    row |= {"transformers": transformers.__version__, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    row["weights_sha256"] = hashlib.sha256((Path(folder) / "model.safetensors").read_bytes()).hexdigest()
    append(output / "runs.csv", [row])


def main() -> None:
    folder, output, wanted = sys.argv[1], Path(sys.argv[2]), "".join(sys.argv[3:])
    torch.set_num_threads(1)
    output.mkdir(parents=True, exist_ok=True)
    for run in RUNS:
        if re.search(wanted, name_of(run)):
            record(folder, output, run)


if __name__ == "__main__":
    main()
