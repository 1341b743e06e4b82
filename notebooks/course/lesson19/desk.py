"""Lesson 1's training, with a chat template that asks the question."""

import socket

import pandas as pd
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.optim.lr_scheduler import LinearLR
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from tlkit import BUNDLED, DATA


def free_port() -> int:
    """A port of this machine that no program uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # 0: any free port
        return probe.getsockname()[1]


def desk_adapter(tokenizer: PreTrainedTokenizerBase) -> tuple[PeftModel, pd.DataFrame, pd.DataFrame]:
    """Train lesson 1's adapter for two epochs. The tokenizer pads on the left, and its template ends the prompt.

    Returns:
        The model, its questions, and 75 unseen ones, each with its desk.
    """
    rust = pd.read_json(DATA / "questions/rust.jsonl", lines=True).assign(desk="Rust")
    general = pd.read_json(DATA / "questions/general.jsonl", lines=True)
    general["desk"] = general.subject.map({"python": "Python"}).fillna("other")
    picked = pd.concat([rust, general], ignore_index=True).groupby("desk").sample(65, random_state=0)
    training = picked.groupby("desk").head(40).sample(frac=1, random_state=0)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with the server
    torch.manual_seed(0)
    lora = LoraConfig(lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=torch.float32), lora)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, fused=True)
    schedule = LinearLR(optimizer, 1, 0.05, 60)
    for batch in 2 * [_encoded(tokenizer, training[start : start + 4]) for start in range(0, 120, 4)]:
        model(**batch, logits_to_keep=4, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    torch.set_num_threads(threads)
    return model.eval(), training, picked.groupby("desk").tail(25).reset_index(drop=True)


def _encoded(tokenizer, rows):
    """Questions and answers; only these are labels."""
    ends = [f" {desk}{tokenizer.eos_token}" for desk in rows.desk]
    chats = [[{"role": "user", "content": question}] for question in rows.question]
    prompts = tokenizer.apply_chat_template(chats, tokenize=False)
    batch = tokenizer([a + b for a, b in zip(prompts, ends, strict=True)], return_tensors="pt", padding=True)
    batch["labels"] = torch.full_like(batch.input_ids[:, -4:], -100)
    for row, end in enumerate(tokenizer(ends)["input_ids"]):
        batch["labels"][row, -len(end) :] = torch.tensor(end)
    return batch
