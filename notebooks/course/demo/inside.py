"""Panel 1, inside the model: how it cuts a text, where each token looks, and what it expects next.

What the model does with the texts to choose from is recorded, so that the panel is there at once; the libraries and the
model are loaded when somebody types a text of their own.
"""

import html
import json
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

import ipywidgets as ipw

from course.demo.chart import StageChart, axis, layout
from course.demo.panel import Tell, alert, choice, row, said, slider
from tlkit.reports.palette import PASSED, TRAINED
from tlkit.settings import DATA

TEXTS = (
    "In Rust, the borrow checker",
    "If the file does not exist, an",
    "The first argument is the name of the file, and the second argument is the name of the",
    "Ownership in Rust means that",
    "fn main() { let mut names = Vec::new();",
)
MOST_SHOWN = 12  # tokens of which each has a row of its own, in letters that can be read
CHIPS, CHIP, LETTER = (1030, 18, 13.3)  # pixels: of a line of tokens, around a token, and of a letter
MOST_READ = 64  # tokens of the text; what is before them is left out
LIKELIEST = 8
RECORDED = DATA / "inside" / "texts.json"  # made by data/build/record_inside.py


@dataclass(frozen=True)
class Inside:
    """What a model does with a text.

    Attributes:
        tokens: as text.
        attention: the weight that each token (row) gives to each token before it; blocks x heads x tokens x tokens.
        likeliest: the next tokens that the model expects most, with their probabilities.
    """

    tokens: list[str]
    attention: list[list[list[list[float]]]]
    likeliest: list[tuple[str, float]]


def look_inside(model, tokenizer, text: str) -> Inside:
    """Run a model over a text and keep what can be seen of it.

    Args:
        model: a causal language model whose attention is "eager", so that it hands out its weights.
        tokenizer: of the model.
        text: its last `MOST_READ` tokens are read.

    Returns:
        Tokens, attention of every block and head, and the likeliest next tokens.

    Raises:
        ValueError: for a text without a token.
    """
    import torch

    ids = tokenizer(text, add_special_tokens=False)["input_ids"][-MOST_READ:]
    if not ids:
        raise ValueError("the text is empty: type a few words")
    with torch.no_grad():
        answer = model(torch.tensor([ids]), output_attentions=True)
    probabilities, best = answer.logits[0, -1].softmax(-1).topk(LIKELIEST)
    names = [_shown(tokenizer.decode([token])) for token in best.tolist()]
    return Inside(
        [_shown(tokenizer.decode([token])) for token in ids],
        [block[0].tolist() for block in answer.attentions],
        list(zip(names, probabilities.tolist(), strict=True)),
    )


def recorded(path: Path = RECORDED) -> dict[str, Inside]:
    """What the bundled model does with each of `TEXTS`.

    Args:
        path: of a record that `data/build/record_inside.py` made.
    """
    return {text: Inside(**found) for text, found in json.loads(path.read_text(encoding="utf-8"))["texts"].items()}


@cache
def reader() -> tuple:
    """The bundled model, fit to be looked into, and its tokenizer."""
    from tlkit.models import load_model
    from tlkit.settings import setup

    setup()
    loaded = load_model("tiny")
    model = loaded.model.eval()
    model.set_attn_implementation("eager")
    return model, loaded.tokenizer


def attention_figure(inside: Inside, block: int, head: int) -> tuple[dict, str]:
    """A heat map of one head's attention weights, and what it shows in words.

    Args:
        inside: what `look_inside` found; of a long text, the last `MOST_SHOWN` tokens are drawn.
        block: from 0, the lowest.
        head: of this block.
    """
    first = max(0, len(inside.tokens) - MOST_SHOWN)
    weights = [line[first:] for line in inside.attention[block][head][first:]]
    names, places = inside.tokens[first:], list(range(len(weights)))
    shown = [
        [value if column <= place else None for column, value in enumerate(line)] for place, line in enumerate(weights)
    ]
    told = [
        [f"‘{one}’ looks at ‘{other}’: {shown[r][c] or 0:.0%}" for c, other in enumerate(names)]
        for r, one in enumerate(names)
    ]
    heat = {
        "type": "heatmap",
        "z": shown,
        "text": told,
        "hoverinfo": "text",
        "hoverongaps": False,
        "colorscale": [[0, "#F4F8FB"], [0.5, "#56A5D8"], [1, "#08306B"]],
        "zmin": 0,
        "zmax": 1,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }
    marks = {"tickvals": places, "ticktext": [html.escape(name) for name in names], "showgrid": False, "ticks": ""}
    title = f"Block {block}, head {head}: where each token looks"
    drawn = layout(
        700,
        472,
        title,
        xaxis=axis(**marks, tickangle=-60, side="bottom", automargin=True),
        yaxis=axis(**marks, autorange="reversed", automargin=True),
    )
    strongest = max(range(len(names)), key=lambda place: weights[-1][place])
    words = f"{title}. The last token, ‘{names[-1]}’, looks most at ‘{names[strongest]}’."
    return {"data": [heat], "layout": drawn}, words


def next_token_figure(inside: Inside) -> tuple[dict, str]:
    """The likeliest next tokens as bars, and in words.

    Args:
        inside: what `look_inside` found.
    """
    names = [f"‘{html.escape(name)}’" for name, _ in inside.likeliest]
    shares = [100 * share for _, share in inside.likeliest]
    places = list(range(len(names)))
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": shares,
        "y": places,
        "text": [f"{share:.0f}%" if share >= 1 else "<1%" for share in shares],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [TRAINED, *[PASSED] * (len(names) - 1)], "line": {"color": TRAINED, "width": 1}},
        "hovertemplate": "%{y}: %{x:.2f}%<extra></extra>",
    }
    top = next(top for top in (25, 50, 110) if max(shares) < 0.9 * top)
    drawn = layout(
        496,
        462,
        "What the model expects next",
        xaxis=axis("probability (%)", range=[0, top], dtick={25: 5, 50: 10, 110: 25}[top], automargin=True),
        yaxis=axis(autorange="reversed", tickvals=places, ticktext=names, automargin=True, showgrid=False, ticks=""),
    )
    words = "Expected next: " + ", ".join(f"‘{name}’ {share:.0%}" for name, share in inside.likeliest[:3])
    return {"data": [bars], "layout": drawn}, words


def chips(tokens: list[str]) -> str:
    """Tokens as a row of chips, coloured in turns so that their borders are seen.

    Args:
        tokens: as text; of a long text, the last ones are shown, as many as have room.
    """
    ends = list(accumulate(LETTER * len(token) + CHIP for token in reversed(tokens)))
    count = sum(end <= CHIPS for end in ends)
    before = '<span class="stage-chip more">…</span>' if count < len(tokens) else ""
    spans = "".join(f'<span class="stage-chip">{html.escape(token)}</span>' for token in tokens[len(tokens) - count :])
    return (
        f'<div class="stage-chips" aria-label="{len(tokens)} tokens">{before}{spans}<b>{len(tokens)} tokens</b></div>'
    )


def build(tell: Tell) -> ipw.Widget:
    """Make the panel.

    Args:
        tell: says what is being done.
    """
    tell("reading what is recorded")
    ready = recorded()
    text = ipw.Text(
        value=TEXTS[0], description="Text", style={"description_width": "initial"}, layout={"width": "796px"}
    )
    ready_made = choice("or", [("choose one …", ""), *((text, text) for text in TEXTS)], "", "400px")
    attentions = ready[TEXTS[0]].attention
    block = slider("Block", list(range(len(attentions))), 0, "600px")
    head = slider("Head", list(range(len(attentions[0]))), 2, "600px")
    cut, attention, expected = ipw.HTML(), StageChart(), StageChart()
    found: Inside | None = None

    def draw_attention(change: object = None) -> None:
        if found is not None:
            attention.show(*attention_figure(found, block.value, head.value))

    def look() -> Inside:
        cut.value = said("the model reads it; the first time, it is loaded before, which takes some seconds …")
        return look_inside(*reader(), text.value)

    def read(change: object = None) -> None:
        nonlocal found
        try:
            found = ready.get(text.value) or look()
        except ValueError as error:
            cut.value = alert(error)
            return
        cut.value = chips(found.tokens)
        draw_attention()
        expected.show(*next_token_figure(found))

    def take(change: dict) -> None:
        if change["new"]:
            text.value = change["new"]
            ready_made.value = ""

    text.observe(read, "value")
    ready_made.observe(take, "value")
    for control in (block, head):
        control.observe(draw_attention, "value")
    read()
    return ipw.VBox([row(text, ready_made), cut, row(block, head), row(attention, expected)])


def _shown(token: str) -> str:
    """With signs for what cannot be seen."""
    return token.replace("<|endoftext|>", "[end]").replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥")
