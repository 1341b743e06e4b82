"""Record what a real model makes of the bug reports in data/tickets: asked, shown examples, and fine-tuned.

    python data/build/record_tickets.py FOLDER_OF_MODEL data/tickets/runs [PATTERN]

Plain transformers and peft, fp32, on the first CUDA card; where there is none, on one thread. Learning rates are chosen
by the loss on validation reports (split "validation"); after that each run answers the 96 test reports once, greedily.
`answers.csv` gets a row for each answer as it was written, `runs.csv` one for each run; seconds without a card are
those that one processor was busy, so a shared machine does not change them. Runs that are in the files already are not
made again; a pattern chooses runs by name, so that several processes, each with a folder, can share the work. The
adapter of one run, KEPT, is saved in data/tickets/adapter, in bf16, and answers as it was saved.
"""

import csv
import datetime
import hashlib
import json
import math
import random
import re
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch.optim.lr_scheduler import OneCycleLR
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

DATA = Path(__file__).resolve().parents[1]
FIELDS = ("crate", "version", "system", "kind")
ASKED = (
    "Answer with JSON: crate, version, system (the operating system), kind (crash, wrong result, compile error, slow, "
    "documentation, feature request). null if not given."
)
TUNED = "Bug report to JSON."  # all that a tuned model is told
SHOWN = (74, 161, 49, 77, 209)  # from training: short, of five kinds, some with a null
BATCH, LIMIT = 8, 60  # reports in a step, tokens of an answer
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Run(NamedTuple):
    """One run: on `examples` reports of training, in `steps` of BATCH; with `renamed`, values are put in anew."""

    method: str
    examples: int = 0
    steps: int = 0
    rate: float = 0.0
    seed: int = 0
    renamed: bool = False
    asked: tuple[str, ...] = ("test",)  # whose reports are answered

    @property
    def name(self) -> str:
        parts = (self.method, self.examples, self.steps, f"{self.rate:g}", self.seed, "renamed" * self.renamed)
        device = "" if DEVICE == "cpu" else DEVICE
        return "-".join(str(part) for part in (*parts, *self.asked, device) if part != "").replace(" ", "")


RUNS = [Run("untouched"), *(Run(f"shown {count}") for count in (1, 3, 5))]
# What training and an answer cost on one thread; the rate makes no difference to that.
RUNS += [
    Run("lora", 285, 72, 1e-3, seed, True, ("validation", "test") if seed == 0 else ("test",)) for seed in range(3)
]
RATES = {
    ("lora", 72): (5e-4, 1e-3, 2e-3, 4e-3),
    ("full", 72): (2e-5, 5e-5, 1e-4, 2e-4, 4e-4),
    ("last_layers", 72): (1e-4, 2e-4, 4e-4, 8e-4, 1.6e-3),
    ("lora", 288): (3e-4, 1e-3, 2e-3),
    ("full", 288): (2e-5, 5e-5, 1e-4, 2e-4),
}
for (method, steps), rates in RATES.items():
    RUNS += [Run(method, 285, steps, rate, 0, True, ("validation",)) for rate in rates]
# Of each the one with the lowest validation loss; qlora takes that of lora.
CHOSEN = {("lora", 72): 2e-3, ("full", 72): 2e-4, ("last_layers", 72): 8e-4, ("qlora", 72): 2e-3}
CHOSEN |= {("lora", 288): 1e-3, ("full", 288): 1e-4}
for (method, steps), rate in CHOSEN.items():
    RUNS += [Run(method, 285, steps, rate, seed, True) for seed in range(3)]
KEPT = Run("lora", 285, 288, CHOSEN["lora", 288], 0, True, ("validation", "test"))
RUNS.append(KEPT)
for examples in (10, 30, 100):
    RUNS += [Run("lora", examples, 72, CHOSEN["lora", 72], seed, True) for seed in range(3)]


def read(split: str) -> list[dict]:
    lines = (DATA / "tickets" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [{"id": row["id"], "report": row["prompt"], **json.loads(row["completion"])} for row in rows]


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


def prompt(tokenizer, report: str, task: str, shown: list[dict]) -> str:
    messages = [{"role": "system", "content": task}]
    for ticket in shown:
        messages.append({"role": "user", "content": ticket["report"]})
        messages.append({"role": "assistant", "content": answer_of(ticket)})
    messages.append({"role": "user", "content": report})
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


# Real ones, of which none is in the data: with invented names a model learns that whatever looks odd is a crate.
CRATES = re.findall(
    r"\S+",
    """
ahash aho-corasick arrayvec askama async-trait backtrace bitflags bytes camino cbindgen ciborium color-eyre config
cookie crc32fast ctrlc darling data-encoding derive_more digest dirs dotenvy either embedded-hal encoding_rs
fancy-regex fastrand figment fixedbitset futures glam glob globset half hashbrown heapless hex home html5ever httparse
humantime iced ignore insta jiff jsonwebtoken kurbo lazy_static libloading log lz4_flex mime minijinja mio mockito
native-tls num-traits once_cell ordered-float pest phf pin-project png pprof quote rkyv rmp-serde ron rstest ryu
schemars scopeguard sea-query semver serde_yaml sha2 signal-hook slab slotmap socket2 strsim strum surf syntect tabled
tap textwrap thread_local tiny-skia tinyvec toml_edit tower trybuild tungstenite typenum ulid unicode-width uom warp
webpki which winreg xattr xml-rs yew zeroize zstd
""",
)
SYSTEMS = [
    "Ubuntu",
    "Debian",
    "Fedora",
    "Windows",
    "Windows Server",
    "macOS",
    "FreeBSD",
    "Alpine",
    "Arch Linux",
    "Android",
    "iOS",
    "openSUSE Leap",
    "Linux Mint",
    "Pop!_OS",
    "Slackware",
    "Haiku",
    "illumos",
    "CentOS Stream",
]


def renamed(ticket: dict, draw: random.Random) -> dict:
    """The same report about another crate, version and system, wherever it names them letter by letter."""
    crate, system = draw.choice(CRATES), draw.choice(SYSTEMS)
    number = ".".join(str(draw.randint(0, 40)) for _ in range((ticket["version"] or "").count(".") + 1))
    if re.search(r"\d", ticket["system"] or ""):
        system += f" {draw.randint(2, 42)}" + draw.choice(("", "", ".04", f".{draw.randint(0, 9)}"))
    new = dict(ticket)
    for field, value in (("crate", crate), ("version", number), ("system", system)):
        old = ticket[field]
        pattern = rf"(?<![\w.-]){re.escape(old or '')}(?![\w-])"
        plain = old and (field != "version" or re.fullmatch(r"[\d.]+", old))
        if plain and re.search(pattern, new["report"]):
            new["report"] = re.sub(pattern, value, new["report"])
            new[field] = value
    return new


def collate(tokenizer, tickets: list[dict]) -> dict[str, object]:
    """Rows padded on the left; labels cover the end of the rows, which is as much as the head computes."""
    answers = [tokenizer(answer_of(ticket) + tokenizer.eos_token).input_ids for ticket in tickets]
    rows = [
        tokenizer(prompt(tokenizer, ticket["report"], TUNED, [])).input_ids + answer
        for ticket, answer in zip(tickets, answers, strict=True)
    ]
    batch = tokenizer.pad({"input_ids": rows}, padding_side="left", return_tensors="pt").to(DEVICE)
    keep = max(map(len, answers)) + 1
    labels = torch.full((len(rows), keep), -100)
    for row, answer in zip(labels, answers, strict=True):
        row[-len(answer) :] = torch.tensor(answer)
    return {**batch, "labels": labels.to(DEVICE), "logits_to_keep": keep}


def load(folder: str, method: str):
    """The model with what `method` trains; all linear layers get adapters, or the last 8 of 30 blocks are trained."""
    options = {"dtype": torch.float32, "device_map": DEVICE}
    if method == "qlora":
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
        )
    model = AutoModelForCausalLM.from_pretrained(folder, **options)
    if method == "qlora":
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if method in ("lora", "qlora"):
        return get_peft_model(
            model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        )
    if method == "last_layers":
        model.requires_grad_(False)
        for block in model.model.layers[-8:]:
            block.requires_grad_(True)
    return model


def batches_of(tickets: list[dict], run: Run) -> list[list[dict]]:
    """As many batches as the run has steps, epoch after epoch; reports of similar length share one."""
    draw, batches = random.Random(run.seed), []
    size = min(BATCH, len(tickets))
    while len(batches) < run.steps:
        order = draw.sample(tickets, len(tickets))
        order = [renamed(ticket, draw) if run.renamed and draw.random() < 0.5 else ticket for ticket in order]
        groups = [order[start : start + 4 * size] for start in range(0, len(order), 4 * size)]
        order = [ticket for group in groups for ticket in sorted(group, key=lambda one: len(one["report"]))]
        epoch = [order[start : start + size] for start in range(0, len(order), size)]
        batches += draw.sample(epoch, len(epoch))
    return batches[: run.steps]


def tune(model, tokenizer, run: Run) -> list[float]:
    """Train in place; the loss of each step."""
    tickets = random.Random(run.seed).sample(read("train"), run.examples)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=run.rate, weight_decay=0.0)
    schedule = OneCycleLR(optimizer, run.rate, total_steps=run.steps, pct_start=0.1)
    losses = []
    model.train()
    for number, tickets_of_step in enumerate(batches_of(tickets, run)):
        loss = model(**collate(tokenizer, tickets_of_step), use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        print(f"  step {number + 1} of {run.steps}: {losses[-1]:.3f}, {clock():.0f} s", flush=True)
    model.eval()
    return losses


@torch.no_grad()
def validation_loss(model, tokenizer) -> float:
    """Nats for each token of the answers, end tokens included."""
    tickets, nats, count = sorted(read("validation"), key=lambda one: len(one["report"])), 0.0, 0
    for start in range(0, len(tickets), 16):
        batch = collate(tokenizer, tickets[start : start + 16])
        labels = int((batch["labels"] != -100).sum())
        nats, count = nats + labels * model(**batch, use_cache=False).loss.item(), count + labels
    return nats / count


@torch.no_grad()
def general_perplexity(model, tokenizer) -> float:
    """On Python's language reference, 40 windows of 128 tokens: what a run has forgotten shows here."""
    text = "\n".join(topics[name] for name in sorted(topics))
    ids = tokenizer(text[:60_000], return_tensors="pt").input_ids[0, : 40 * 128].view(40, 128).to(DEVICE)
    losses = [model(few, labels=few, use_cache=False).loss.item() for few in ids.split(8)]
    return math.exp(sum(losses) / len(losses))


@torch.no_grad()
def write(model, tokenizer, prompts: list[str], size: int = 24) -> list[str]:
    """One answer a prompt, those of similar length together."""
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
    texts = [""] * len(prompts)
    for start in range(0, len(order), size):
        places = order[start : start + size]
        batch = tokenizer([prompts[p] for p in places], padding=True, padding_side="left", return_tensors="pt")
        batch = batch.to(DEVICE)
        written = model.generate(**batch, max_new_tokens=LIMIT, do_sample=False)[:, batch.input_ids.shape[1] :]
        for place, text in zip(places, tokenizer.batch_decode(written, skip_special_tokens=True), strict=True):
            texts[place] = text
        print(f"  {start + len(places)} answers, {clock():.0f} s", flush=True)
    return texts


def clock() -> float:
    """Seconds: those that the processor was busy, or where a card computes, those that passed."""
    if DEVICE == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def keep(model) -> None:
    """Save the adapter, rounded to bf16 in the file and in the model."""
    rounded = {name: tensor.bfloat16() for name, tensor in model.state_dict().items() if "lora_" in name}
    model.load_state_dict(rounded, strict=False)
    model.peft_config["default"].base_model_name_or_path = "HuggingFaceTB/SmolLM2-135M-Instruct"
    model.save_pretrained(DATA / "tickets" / "adapter", state_dict=rounded)
    (DATA / "tickets" / "adapter" / "README.md").unlink()  # an empty form; the datasheet says what it is


def rows_of(path: Path) -> list[dict]:
    return list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []


def append(path: Path, rows: list[dict]) -> None:
    fresh = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


def record(folder: str, output: Path, run: Run) -> None:
    if any(row["run"] == run.name for row in rows_of(output / "runs.csv")):
        return
    print(run.name, flush=True)
    torch.manual_seed(run.seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, losses = load(folder, run.method).eval(), []
    started = clock()
    if run.steps:
        losses = tune(model, tokenizer, run)
    trained = clock() - started
    if run == KEPT and DEVICE == "cpu":
        keep(model)
    row = run._asdict() | {"renamed": int(run.renamed), "asked": " ".join(run.asked)}
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else "one core"
    row = {"run": run.name, **row, "device": device, "train_seconds": round(trained, 1)}
    row["validation_loss"] = round(validation_loss(model, tokenizer), 4) if run.steps else ""
    row |= {"prompt_tokens": "", "answer_seconds": "", "general_perplexity": ""}
    if run.asked:
        row["general_perplexity"] = round(general_perplexity(model, tokenizer), 3)
    by_number = {int(ticket["id"][-3:]): ticket for ticket in read("train")}
    count = int(run.method.split()[1]) if run.method.startswith("shown") else 0
    shown = [by_number[number] for number in SHOWN[:count]]
    for split in run.asked:
        tickets = read(split)
        prompts = [prompt(tokenizer, ticket["report"], TUNED if run.steps else ASKED, shown) for ticket in tickets]
        row["prompt_tokens"] = round(sum(len(ids) for ids in tokenizer(prompts).input_ids) / len(prompts), 1)
        started = clock()
        texts = write(model, tokenizer, prompts)
        row["answer_seconds"] = round((clock() - started) / len(prompts), 2)
        answers = [
            {"run": run.name, "split": split, "id": ticket["id"], "answer": text} | marks(text, ticket)
            for ticket, text in zip(tickets, texts, strict=True)
        ]
        append(output / "answers.csv", answers)
    row |= {"losses": " ".join(f"{loss:.3f}" for loss in losses), "torch": torch.__version__, "peft": peft.__version__}
    row |= {"transformers": transformers.__version__, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    row["weights_sha256"] = hashlib.sha256((Path(folder) / "model.safetensors").read_bytes()).hexdigest()
    append(output / "runs.csv", [row])


def main() -> None:
    folder, output, wanted = sys.argv[1], Path(sys.argv[2]), "".join(sys.argv[3:])
    torch.set_num_threads(1)
    output.mkdir(parents=True, exist_ok=True)
    for run in RUNS:
        if re.search(wanted, run.name):
            record(folder, output, run)


if __name__ == "__main__":
    main()
