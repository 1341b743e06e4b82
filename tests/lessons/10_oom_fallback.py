import pytest
from torch.utils.flop_counter import FlopCounterMode
from transformers import TrainerCallback

counted = [int((labels[rows] != -100).sum()) for rows in (slice(0, 2), slice(2, 4))]
assert counted == [126, 28] and counted[0] / counted[1] == 4.5
assert right < 1e-4 and apart(means, whole) > 0.5
assert 27.5 < kept - fewer < 28.5 and difference < 1e-4
assert [round(8 * 256 * size / 2**20, 1) for size in (15_128, 4 * 192)] == [29.5, 1.5], "192 wide, in fp32"
assert apart(gradient(checkpointed(), 4), whole) < 1e-5
failed, host = "forward or backward", "AdamW to the host"
parameters = sum(p.numel() for p in undisturbed.parameters())
assert [round(n * parameters / 2**20) for n in (4, 8)] == [15, 31] and 61 < 16 * parameters / 2**20 < 62
half = [(failed, "half the rows", 2), (failed, "half the rows", 1)]
whole = [*half, (failed, "checkpointing", 4)]
log = recovered("62MiB").itertuples(index=False, name=None)  # the page prints those of 76, 70 and 48
assert list(log) == [(2, *row) for row in (*whole, *half, (failed, host, 4))]
model = load()
for batch in batches:  # each step with a HostAdamW that lost the moments
    attempt(model, HostAdamW(adamw(model.parameters())), *batch, 4)
assert apart(flat(model.parameters()), flat(undisturbed.parameters())) > 1e-3, "1e-5 is the lesson's limit"
with pytest.raises(torch.OutOfMemoryError, match="left for the forward or back"):
    recovered("20MiB")
groups = [{"params": [torch.ones(2, dtype=torch.bfloat16)], "lr": rate} for rate in (0.02, 0.03)]
groups = HostAdamW(torch.optim.AdamW(groups)).adamw.param_groups
assert [(g["params"][0].dtype, g["lr"]) for g in groups] == [(torch.float32, 0.02), (torch.float32, 0.03)]
work = {}
for way, model, size in (("whole", load(), 2), ("rows", load(), 1), ("twice", checkpointed(), 2)):
    with FlopCounterMode(display=False) as counter:
        accumulate(model, inputs[:2], labels[:2], size)
    work[way] = counter.get_total_flops()
assert work["whole"] == work["rows"] and 1.2 < work["twice"] / work["whole"] < 1.34
assert [round(n * weights / 1e9) for n in (4, 16, 28)] == [27, 108, 189]
tried = []


class Tries(TrainerCallback):
    def on_step_begin(self, arguments, state, control, **others):
        tried.append((state.train_batch_size, state.global_step + 1))


retrying = TrainingArguments(
    mkdtemp(), max_steps=2, use_cpu=True, report_to="none", disable_tqdm=True,
    save_strategy="no", per_device_train_batch_size=4, auto_find_batch_size=True,
)  # fmt: skip
rows = [{"input_ids": row, "labels": row} for row in text]
trainer = Trainer(load(), retrying, train_dataset=rows, callbacks=[Tries()])
trainer.remove_callback(PrinterCallback)
with tl.virtual_device(memory="76MiB") as card:
    card.count(trainer.model.parameters())
    trainer.train()
assert dict(tried) == {4: 2, 3: 1, 2: 2}, "the last step of each attempt; three rows fail at once: the moments stay"
line = "a step refused six times, at 70% and 25% of what it needs | ended on the host, no byte kept, losses 1e-6 apart"
assert line in (tl.DATA.parent / "tests/gpu/RESULTS.md").read_text(encoding="utf-8")
full, lora, qlora = (size / 2**30 for size in needs.values())
assert [round(full), round(lora), round(qlora)] == [25, 13, 4] and round(20 - qlora) == 16 and 0.85 * 23.65 > 20
kept, logits = 32 * 2048 * 4096 * 2 / 2**30, 3 * 2048 * 32_000 * 4 / 2**30
assert (round(kept, 1), round(logits, 1), round(kept + logits, 1)) == (0.5, 0.7, 1.2) and logits > 0.4
# A block (0.4) is recomputed when the logits are gone. Room, too, for logits in bf16 beside the three (0.12 GiB a row).
assert 5 * (kept + logits + 2048 * 32_000 * 2 / 2**30) < 20 - lora < min(7.4, 6 * (kept + logits))


class MeanOfMeans(Trainer):  # with the fault, the padded rows move the weights
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.model_accepts_loss_kwargs = False


Trainer = MeanOfMeans
assert apart(by_trainer(per_device_train_batch_size=1, gradient_accumulation_steps=4), thrifty) > 1e-3
# The page's sums of 15, 31 and 11 MiB, to within 3: a row takes 10.4 to 11.5.


def peaks(size, made=load):
    """MiB at most in the first and in the second step."""
    model, most, rows = made(), [], (text[:4, :-1], text[:4, 1:])  # of single rows, two: the gradients of one wait
    with tl.track_memory(model) as track:
        optimizer = adamw(model.parameters())
        for _ in range(2):
            accumulate(model, *(tokens[: 2 * size] for tokens in rows), size)
            most.append(track.peak / 2**20)
            optimizer.step()
            model.zero_grad()
            track.peak = track.current
    return most


measured = [*peaks(4), *peaks(2), *peaks(1), peaks(4, checkpointed)[1]]
assert all(abs(one - said) < 3 for one, said in zip(measured, (59, 90, 52, 83, 41, 72, 67), strict=True)), measured
# Scratch of the default on CUDA (foreach) fails when moments and, by decay, weights have changed; fused needs none.
for options in ({"foreach": True}, {"fused": True}):
    model, failed = load(), False
    accumulate(model, text[:1, :-1], text[:1, 1:], 1)
    before = flat(model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    with tl.virtual_device(memory="70MiB") as card:  # 62 for weights, gradients and moments
        card.count(tensor for p in model.parameters() for tensor in (p, p.grad))
        try:
            optimizer.step()
        except torch.OutOfMemoryError:
            failed = True
    assert failed == ("foreach" in options) and apart(flat(model.parameters()), before) > 0
assert round((16.1 - 12.9 - 0.2) / 32 * 4, 1) == 0.4, "a block of lesson 9's Llama, for 2,048 tokens and not 512"
