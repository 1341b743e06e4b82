"""Step 3: pretrain the bundled model on the training paragraphs.

    python data/build/pretrain.py build-work --minutes 120

Deterministic batches (a permutation of the blocks for every epoch, from the seed), a checkpoint every
500 steps, and the same command resumes. The learning rate falls with the *time* that is left, not with
a step count, so that one command line means "the best model in so many minutes" on any machine.
Resuming with a larger `--minutes` goes on at the higher learning rate that the longer run has there. With `--steps`
the rate falls with the steps instead, so that two runs on different text are alike in all else.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

SEED = 20
BLOCK = 256
BATCH = 8
WARM_UP_STEPS = 100
PEAK_LR = 3e-3
WEIGHT_DECAY = 0.1


def configuration(end_of_text: int) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=4096,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=BLOCK,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
        pad_token_id=end_of_text,
        attention_dropout=0.0,
        dtype="float32",
    )


def token_stream(path: Path, tokenizer) -> torch.Tensor:
    """All paragraphs as one row of token ids, each opened by the end-of-text token."""
    with open(path, encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    ids: list[int] = []
    for tokens in tokenizer(texts, verbose=False)["input_ids"]:
        ids += [tokenizer.eos_token_id, *tokens]
    return torch.tensor(ids)


def blocks_of(stream: torch.Tensor) -> torch.Tensor:
    return stream[: len(stream) // BLOCK * BLOCK].view(-1, BLOCK)


def batch_at(step: int, blocks: torch.Tensor, offset_seed: int) -> torch.Tensor:
    """The batch of one step, from nothing but the seed and the step number."""
    per_epoch = len(blocks) // BATCH
    epoch, place = divmod(step, per_epoch)
    order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(offset_seed + epoch))
    return blocks[order[place * BATCH : (place + 1) * BATCH]]


@torch.no_grad()
def heldout_loss(model: torch.nn.Module, blocks: torch.Tensor, limit: int | None = None) -> float:
    model.eval()
    losses = [model(input_ids=part, labels=part).loss * len(part) for part in blocks[:limit].split(BATCH)]
    model.train()
    return float(sum(losses) / len(blocks[:limit]))


def make_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    """AdamW; weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.95), fused=True)


def learning_rate_factor(step: int, fraction_of_time: float) -> float:
    """Linear warm-up by steps, then constant, then linear to zero over the last 60% of the time."""
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    return warm_up * min(1.0, max(0.0, (1 - fraction_of_time) / 0.6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--steps", type=int, help="stop after so many, however long they take")
    arguments = parser.parse_args()
    work = arguments.work

    torch.manual_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(work / "model")
    train = blocks_of(token_stream(work / "train.jsonl", tokenizer))
    heldout = blocks_of(token_stream(work / "heldout.jsonl", tokenizer))
    heldout_bytes = sum(len(tokenizer.decode(row, skip_special_tokens=True).encode()) for row in heldout)
    bits_per_byte = heldout.numel() / heldout_bytes / math.log(2)  # of one nat a token

    model = Qwen2ForCausalLM(configuration(tokenizer.eos_token_id))
    optimizer = make_optimizer(model)
    step, spent, curve = 0, 0.0, []
    checkpoint = work / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step, spent, curve = saved["step"], saved["seconds"], saved["curve"]
    print(f"{model.num_parameters():,} parameters; {train.numel():,} training tokens; from step {step}", flush=True)

    def save() -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state | {"step": step, "seconds": spent, "curve": curve}, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)

    compiled = torch.compile(model)
    budget, running = arguments.minutes * 60, 0.0
    while (done := step / arguments.steps if arguments.steps else spent / budget) < 1:
        started = time.perf_counter()
        factor = learning_rate_factor(step, done)
        for group in optimizer.param_groups:
            group["lr"] = PEAK_LR * factor
        batch = batch_at(step, train, SEED)
        loss = compiled(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        spent += min(time.perf_counter() - started, 30)  # a suspended machine does not count
        running = 0.98 * running + 0.02 * loss.item() if running else loss.item()
        if step % 100 == 0:
            print(f"{step} {spent / 60:.1f} min loss {running:.3f} lr x{factor:.2f}", flush=True)
        if step % 500 == 0:
            value = heldout_loss(model, heldout, limit=160)
            curve.append({"step": step, "tokens": step * BATCH * BLOCK, "train_loss": running, "heldout_loss": value})
            print(f"  held out (first 160 blocks): {value:.4f}, {value * bits_per_byte:.4f} bits a byte", flush=True)
            save()

    value = heldout_loss(model, heldout)
    curve.append({"step": step, "tokens": step * BATCH * BLOCK, "train_loss": running, "heldout_loss": value})
    save()
    print(f"held out, whole: {value:.4f} nats a token, {value * bits_per_byte:.4f} bits a byte", flush=True)


if __name__ == "__main__":
    main()
