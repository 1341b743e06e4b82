"""Inside the model: how it cuts a text into tokens, where each token looks, and what is expected next."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import ipywidgets as ipw
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from course.drawing import PASSED, TRAINED
from course.panels.views import Panel, View, choice, new_figure, on_change, row
from tlkit.models import load_model
from tlkit.settings import setup

TEXTS = (
    "In Rust, the borrow checker",
    "If the file does not exist, an",
    "The first argument is the name of the file, and the second argument is the name of the",
    "Ownership in Rust means that",
    "fn main() { let mut names = Vec::new();",
)
MOST_SHOWN = 12  # tokens of which each has a row of its own, in letters that can be read
MOST_READ = 64  # tokens of the text; what is before them is left out
LIKELIEST = 8


@dataclass(frozen=True)
class Inside:
    """What a model does with a text.

    Attributes:
        tokens: as text.
        attention: the weight that each token (row) gives to each token before it; blocks x heads x tokens x tokens.
        likeliest: the next tokens that the model expects most, with their probabilities.
    """

    tokens: list[str]
    attention: torch.Tensor
    likeliest: list[tuple[str, float]]


@torch.no_grad()
def look_inside(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> Inside:
    """Run a model over a text and keep what can be seen of it.

    Args:
        model: a causal language model whose attention is "eager", so that it hands out its weights.
        tokenizer: of the model.
        text: its last `MOST_READ` tokens are read.

    Raises:
        ValueError: for a text without a token.
    """
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][-MOST_READ:]
    if not ids:
        raise ValueError("the text is empty: type a few words")
    answer = model(torch.tensor([ids]), output_attentions=True)
    probabilities, best = answer.logits[0, -1].softmax(-1).topk(LIKELIEST)
    likeliest = list(zip(_names(tokenizer, best.tolist()), probabilities.tolist(), strict=True))
    return Inside(_names(tokenizer, ids), torch.cat(answer.attentions), likeliest)


def inside_view(inside: Inside, block: int, head: int) -> View:
    """Draw one head's attention weights beside the likeliest next tokens.

    Args:
        inside: what `look_inside` found; of a long text, the last `MOST_SHOWN` tokens are drawn.
        block: from 0, the lowest.
        head: of this block.
    """
    names = inside.tokens[-MOST_SHOWN:]
    weights = inside.attention[block, head, -len(names) :, -len(names) :]
    later = torch.ones_like(weights, dtype=torch.bool).triu(1)
    figure, (heat, bars) = new_figure(2.6, columns=(3, 2))
    heat.imshow(weights.masked_fill(later, torch.nan), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    heat.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    heat.set_yticks(range(len(names)), names, parse_math=False)
    heat.set_title(f"Block {block}, head {head}: where each token looks", fontsize="medium")
    expected, shares = zip(*inside.likeliest, strict=True)
    drawn = bars.barh(
        range(len(shares)), [100 * share for share in shares], color=[TRAINED, *[PASSED] * (len(shares) - 1)]
    )
    bars.bar_label(drawn, [f"{share:.0%}" if share >= 0.01 else "<1%" for share in shares], padding=2)
    bars.set_yticks(range(len(shares)), expected, parse_math=False)
    bars.invert_yaxis()
    bars.set_xlim(0, 125 * max(shares))
    bars.set_xlabel("probability (%)")
    bars.set_title("What is expected next", fontsize="medium")
    strongest = names[int(weights[-1].argmax())]
    text = f"{len(inside.tokens)} tokens. In block {block}, head {head}, the last token ‘{names[-1]}’ looks most at "
    next_ones = ", ".join(f"‘{name}’ {share:.0%}" for name, share in inside.likeliest[:3])
    return View(f"{text}‘{strongest}’ ({float(weights[-1].max()):.0%}). Expected next: {next_ones}.", figure)


def inside_the_model() -> Panel:
    """Show tokens, attention and the next token for any text; from code: `inside_view(look_inside(...), 0, 0)`."""
    text = ipw.Text(value=TEXTS[0], description="Text", style={"description_width": "initial"}, layout={"width": "60%"})
    ready = choice("or", [("choose one …", ""), *zip(TEXTS, TEXTS, strict=True)], "")
    ready.layout.max_width = "30%"
    config = reader()[0].config
    block, head = _slider("Block", config.num_hidden_layers, 0), _slider("Head", config.num_attention_heads, 2)
    panel = Panel(row(text, ready), row(block, head))

    def update() -> None:
        with panel.working():
            panel.show(inside_view(_look(text.value), block.value, head.value))

    def take() -> None:
        if ready.value:
            text.value, ready.value = ready.value, ""

    on_change(update, text, block, head)
    on_change(take, ready)
    update()
    return panel


@cache
def reader() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The bundled model, fit to be looked into, and its tokenizer."""
    setup()
    loaded = load_model("tiny")
    loaded.model.set_attn_implementation("eager")
    return loaded.model.eval(), loaded.tokenizer


@cache
def _look(text: str) -> Inside:
    return look_inside(*reader(), text)


def _slider(label: str, count: int, value: int) -> ipw.IntSlider:
    return ipw.IntSlider(value, 0, count - 1, description=label, style={"description_width": "initial"})


def _names(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Tokens as text, with signs for what cannot be seen."""
    names = [tokenizer.decode([token]) for token in ids]
    for seen, sign in {"<|endoftext|>": "[end]", " ": "·", "\n": "⏎", "\t": "⇥"}.items():
        names = [name.replace(seen, sign) for name in names]
    return names
