"""Scaling out: one update from micro-batches, on one of two cards."""

from contextlib import contextmanager
from copy import deepcopy

import torch
from torch.nn.utils import clip_grad_norm_, parameters_to_vector
from transformers import AutoModelForCausalLM, Qwen2Config

from course.exercises import Quiz, Wrong, called, exercise, near, number

SIZES = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1}
TINY = Qwen2Config(vocab_size=16, num_hidden_layers=1, **SIZES)
CASES = {  # labels in each micro-batch of two cards, and what to ask if the step is wrong
    "for equal counts of labels": (
        (4, 4, 4, 4),
        "Is the loss divided by $T / n$, as DDP divides by $n$, too? Nothing predicts a first token.",
    ),
    "for unequal micro-batches": ((7, 1, 1, 7), "Does $T$ count the tokens of all micro-batches?"),
    "for a card with more labels": ((6, 6, 2, 2), "Does $T$ count the tokens of both cards?"),
    "for micro-batches without labels": ((0, 7, 7, 0), "Such a micro-batch adds nothing, but it has to pass, too."),
    "for steep losses": ((4, 4, 4, 4), "Are the gradients clipped once, when they are complete?"),
}


class _Card:
    """What accelerate gives to one card; `other` are the tokens, loss and gradients of a second one."""

    num_processes, sends, sent, gathers = 2, True, 0, 0
    clip_grad_norm_ = staticmethod(clip_grad_norm_)

    def __init__(self, model, other):
        self.model, self.other = model, other

    def gather(self, tensor):  # counts of tokens at first, and losses after a backward pass
        return torch.stack([tensor.reshape(()), self.other[self.gathers]])

    @contextmanager
    def no_sync(self, model):
        self.sends = False
        yield
        self.sends = True

    def backward(self, loss):
        loss.backward()
        self.gathers = 1
        if self.sends:
            self.sent += 1
            for p, gradient in zip(self.model.parameters(), self.other[2], strict=True):
                p.grad = (p.grad + gradient) / 2


@exercise(
    "ex18_1",
    "the updates of two cards, with equal and unequal counts of labels",
    "Count the labels of all `parts` first, and gather the counts once. Then go through `parts`.",
    "From `loss = …` on, the loop of `train.py` stays. Compute the loss and go back for each micro-batch.",
    "`with nullcontext() if k == len(parts) else accelerator.no_sync(model):` sends with the last micro-batch only.",
)
def update(answer: object) -> None:
    """Judge an update."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        start, rows = AutoModelForCausalLM.from_config(TINY), torch.randint(16, (4, 8))
    for story, (counts, asked) in CASES.items():
        if "steep" in story:
            start.lm_head.weight.data *= 3
        its = torch.tensor(counts)[:, None]
        labels = rows.masked_fill(torch.arange(8) >= its + (its > 0), -100)
        cards, alone = [*zip(rows.split(2), labels.split(2), strict=True)], []
        for its_rows, its_labels in cards:
            model = deepcopy(start)
            loss = model(its_rows, labels=its_labels, num_items_in_batch=sum(counts) / 2).loss
            loss.backward()
            alone.append(((its_labels[:, 1:] != -100).sum(), loss.detach(), [p.grad for p in model.parameters()]))
        for p, *gradients in zip(model.parameters(), *(each[2] for each in alone), strict=True):
            p.grad = sum(gradients) / 2
        clip_grad_norm_(model.parameters(), 1.0)
        torch.optim.SGD(model.parameters(), lr=1.0).step()
        wanted, mean = parameters_to_vector(model.parameters()), sum(each[1] for each in alone) / 2
        for pair, other in zip(cards, alone[::-1], strict=True):
            model = deepcopy(start)
            card, parts = _Card(model, other), [*zip(*(half.split(1) for half in pair), strict=True)]
            loss = number(called(answer, card, model, torch.optim.SGD(model.parameters(), lr=1.0), parts))
            if card.sent != 1:
                raise Wrong(f"{story}, gradients are sent {card.sent} times: once is right, with the last micro-batch.")
            if not torch.allclose(parameters_to_vector(model.parameters()), wanted, 1e-3, 1e-4):
                raise Wrong(f"{story}, the step is not right. {asked}")
            if any(p.grad is not None and p.grad.any() for p in model.parameters()):
                raise Wrong("gradients are left over for the next update.")
            if not near(loss, mean):
                raise Wrong(f"{story}, the loss is {loss:.4g}, and that of all tokens {mean:.4g}.")


QUIZ = Quiz(
    "quiz18",
    "LoRA on `llama2-7b`, with weights in fp32, needs 30 GiB, and each of your eight cards of 80 GB holds that. With "
    "DDP each process sends 0.14 GB a step.\nYou choose FSDP all the same. How many bytes does each process send now?",
    {
        "a": "about as many: frozen weights have no gradients, so nothing of them travels",
        "b": "about one and a half times as many",
        "c": "about an eighth: everything is divided among eight",
        "d": "more than three hundred times as many",
    },
    {
        "a": "no: this is true of DDP. With FSDP, a block's weights have to be gathered before it computes, whether "
        "they are frozen or not.",
        "b": "no: that holds if every parameter is trained. Then FSDP sends weights twice and gradients once, and DDP "
        "sends gradients twice. Here almost nothing has a gradient, but all weights have to be gathered.",
        "c": "no: an eighth is what each process *keeps*. What it does not keep has to come from the others.",
        "d": "yes: about 47 GB. A block computes with all of its weights, frozen or not, and they are gathered in both "
        "passes. LoRA sends little with DDP only. Use FSDP for what does not fit a card otherwise.",
    },
    right="d",
)
