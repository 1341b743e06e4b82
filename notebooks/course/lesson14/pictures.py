"""Pictures of lesson 14: which tokens an answer is learned from, when answers stop, and what a preference changes."""

import html
from dataclasses import dataclass

import pandas as pd
import torch

from tlkit.evidence.answering import Answering
from tlkit.examples import IGNORED, PADDING, Examples
from tlkit.reports.drawing import PASSED, SPARED, TRAINED, arrow, box, paper
from tlkit.reports.figure import COLOURS, FAINT, INK, Chart, described, headline, new_figure, styles
from tlkit.reports.labels import label_ends

KINDS = {
    "read": "only read (masked)",
    "learned": "learned",
    "end": "learned: the end of an answer",
    "padding": "padding",
}
# Marked by a line as well as by colour, for those who do not tell colours apart and for black-and-white print.
STYLES = {
    "read": f"background:{SPARED};color:#555;border-bottom:2px dotted #999",
    "learned": f"background:{PASSED};color:#111;border-bottom:2px solid {TRAINED}",
    "end": f"background:{TRAINED};color:#fff;border-bottom:2px solid #111;font-weight:bold",
    "padding": "background:#fff;color:#aaa;border-bottom:2px dotted #ddd",
}


@described
def answer_picture(examples: Examples, row: int = 0) -> Chart:
    """One conversation in a row of tokens: what is only read, what is learned, and what is neither.

    Args:
        examples: of conversations of two messages, padded.
        row: which one.
    """
    learned = examples.labels[row] != IGNORED
    counts = {
        "question": int((~learned & (examples.texts[row] != PADDING)).sum()),
        "answer": int(learned.sum()) - 1,
        "padding": int((examples.texts[row] == PADDING).sum()),
    }
    figure, axes = paper(2.6, right=100, top=40)
    widths = {"question": 40, "answer": 30, "end": 10, "padding": 16}
    texts = {
        "question": (f"template and question\n{counts['question']} tokens", "labels: -100\nonly read", SPARED),
        "answer": (f"answer\n{counts['answer']} tokens", "labels: the tokens\nlearned", PASSED),
        "end": ("end\n1 token", "its label,\nlearned", TRAINED),
        "padding": (f"padding\n{counts['padding']} tokens", "labels: -100\nof no meaning", "white"),
    }
    left = 1.0
    for name, width in widths.items():
        words, label, colour = texts[name]
        style = {"linestyle": "--"} if name == "padding" else {}
        box(axes, (left, 22), width - 1, 13, words, facecolor=colour, **style)
        arrow(axes, (left + width / 2 - 0.5, 21), (left + width / 2 - 0.5, 13), linewidth=1)
        axes.text(left + width / 2 - 0.5, 7, label, ha="center", va="center", fontsize="small", color=INK)
        left += width
    total = counts["question"] + counts["answer"] + 1
    figure.words = (f"{counts['answer'] + 1} of {total} tokens have a label",)
    headline(figure, f"{counts['answer'] + 1} of {total} tokens are learned: the answer, and that it ends")
    return figure


@described
def stopping_chart(answered: dict[str, Answering], new_tokens: int) -> Chart:
    """The share of answers that still go on after so many tokens; what is left at the end was cut off by the limit.

    Args:
        answered: by the name of a model, its answers to the same questions.
        new_tokens: the limit.
    """
    figure, axes = new_figure(3.4)
    at_the_end, drawn = {}, styles(answered)
    for order, (name, answers) in enumerate(answered.items()):
        table = answers.table
        ends = sorted(table.tokens[table.stopped])
        places = [0, *ends, new_tokens]
        shares = [100 * (1 - min(number, len(ends)) / len(table)) for number in range(len(ends) + 1)]
        style = {"color": drawn[name][0], "linestyle": ("-", "--", ":", "-.")[order % 4]}
        axes.step(places, [*shares, shares[-1]], where="post", **style)
        at_the_end[name] = shares[-1]
    axes.set_xlim(0, new_tokens)
    axes.set_ylim(-2, 103)
    axes.set_xlabel(f"tokens written (the limit is {new_tokens})")
    axes.set_ylabel("answers that still go on (%)")
    ends = {name: (new_tokens, share) for name, share in at_the_end.items()}
    label_ends(axes, ends, {name: shade for name, (shade, _) in drawn.items()})
    never = [name for name, share in at_the_end.items() if share == 100]
    said = "; ".join(f"{name}: {share:.0f}%" for name, share in at_the_end.items())
    figure.words = (f"still going on at the limit: {said}",)
    finding = f"{never[0].capitalize()}: no answer ever stops" if len(never) == 1 else "How many answers still go on"
    headline(figure, finding)
    return figure


@described
def preference_chart(chosen: torch.Tensor, rejected: torch.Tensor) -> Chart:
    """For each pair how much more or less likely both answers have become; below the diagonal the margin has widened.

    Args:
        chosen: change of the preferred answers' log-probabilities in nats, shape (pairs,).
        rejected: of the other answers'.
    """
    figure, axes = new_figure(4.0)
    axes.scatter(chosen, rejected, color=COLOURS[0], zorder=3)
    low, high = (float(min(chosen.min(), rejected.min())), float(max(chosen.max(), rejected.max(), 0)))
    span = [low * 1.05, high + 0.05 * (high - low)]
    axes.plot(span, span, color=FAINT, linestyle="--", linewidth=1)
    axes.axvline(0, color=FAINT, linewidth=1)
    axes.axhline(0, color=FAINT, linewidth=1)
    axes.set_xlim(float(chosen.min()) * 1.3 - 2, max(4.0, float(chosen.max()) * 1.3))
    axes.set_ylim(*span)
    left = axes.get_xlim()[0]
    beside = {"xytext": (0, -6), "va": "top", "textcoords": "offset points", "color": FAINT, "fontsize": "small"}
    axes.annotate("on the line the margin is unchanged", (0.97 * left, 0.97 * left), **beside)
    axes.set_xlabel("preferred answer: change of its log-probability (nats)")
    axes.set_ylabel("other answer: change (nats)")
    wider, lower = int((chosen > rejected).sum()), int((chosen < 0).sum())
    pairs = len(chosen)
    said = f"{wider} of {pairs} margins widen, and {lower} of the {pairs} preferred answers are less likely now"
    headline(figure, said)
    return figure


@dataclass(frozen=True)
class TokenView:
    """The tokens of one row; a notebook shows them coloured.

    Attributes:
        table: a row for each token: its place, id, text, and its kind, a key of `KINDS`.
    """

    table: pd.DataFrame

    @property
    def counts(self) -> dict[str, int]:
        """Tokens of each kind."""
        return {kind: int((self.table.kind == kind).sum()) for kind in KINDS}

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<span title="place {row.place}, id {row.id}: {KINDS[row.kind]}" style="{STYLES[row.kind]};'
            f'padding:1px 3px;margin:1px;display:inline-block;font-family:monospace">{html.escape(row.text)}</span>'
            + ("<br>" if row.text.endswith("⏎") else "")
            for row in self.table.itertuples()
        )
        legend = " ".join(
            f'<span style="{STYLES[kind]};padding:1px 6px;margin-right:8px;display:inline-block">{said}: {count}</span>'
            for kind, said in KINDS.items()
            if (count := self.counts[kind])
        )
        return f'<div style="line-height:1.9;max-width:60em">{legend}<hr style="margin:4px 0">{cells}</div>'


def token_view(examples: Examples, tokenizer, row: int = 0) -> TokenView:
    """Show what is learned from one row of examples.

    Args:
        examples: of conversations.
        tokenizer: of the model.
        row: which one.

    Returns:
        The view.
    """
    stops, rows = {tokenizer.eos_token_id}, []
    here = zip(*(part[row].tolist() for part in (examples.tokens, examples.labels, examples.texts)), strict=True)
    for place, (token, label, text) in enumerate(here):
        kind = "padding" if text == PADDING else "read" if label == IGNORED else "end" if label in stops else "learned"
        rows.append({"place": place, "id": token, "text": _shown(tokenizer.decode([token])), "kind": kind})
    return TokenView(pd.DataFrame(rows))


def _shown(text: str) -> str:
    """With signs for what cannot be seen."""
    return text.replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥")
