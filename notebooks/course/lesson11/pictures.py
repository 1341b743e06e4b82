"""The pictures of lesson 11: which tokens of a conversation are learned, and a padded batch."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.colors import ListedColormap

from course.drawing import TRAINED
from tlkit.examples import IGNORED
from tlkit.reports.figure import COLOURS, Chart, described, headline, new_figure

READ, LEARNED = "#DDDDDD", COLOURS[5]
# Marked by a line as well as by colour, for those who do not tell colours apart and for black-and-white print.
STYLES = {
    "only read (label -100)": f"background:{READ};color:#444;border-bottom:2px dotted #999",
    "learned": f"background:{LEARNED};color:#111;border-bottom:2px solid {TRAINED}",
    "learned: the end": f"background:{TRAINED};color:#fff;border-bottom:2px solid #111;font-weight:bold",
}


@dataclass(frozen=True)
class TokenView:
    """The tokens of one conversation, each with its text and its kind, a key of `STYLES`; a notebook colours them."""

    tokens: tuple[tuple[str, str], ...]

    def _repr_html_(self) -> str:
        kinds = [kind for _, kind in self.tokens]
        legend = [(f"{kind}: {kinds.count(kind)}", kind) for kind in STYLES]
        above, below = (
            "".join(
                f'<span style="{STYLES[kind]};padding:1px 4px;margin:1px;display:inline-block;font-family:monospace">'
                f"{html.escape(text)}</span>" + ("<br>" if text.endswith("⏎") else "")
                for text, kind in part
            )
            for part in (legend, self.tokens)
        )
        return f'<div style="line-height:1.9;max-width:60em">{above}<hr style="margin:4px 0">{below}</div>'


def token_view(input_ids: Sequence[int], labels: Sequence[int], tokenizer) -> TokenView:
    """Show which tokens of a conversation are learned.

    Args:
        input_ids: its tokens.
        labels: at the same places; -100 where nothing is learned.
        tokenizer: of the model.

    Returns:
        The view.
    """
    read, learned, end = STYLES
    kinds = [read if at == IGNORED else end if at == tokenizer.eos_token_id else learned for at in labels]
    shown = [tokenizer.decode([token]).replace(" ", "·").replace("\n", "⏎") for token in input_ids]
    return TokenView(tuple(zip(shown, kinds, strict=True)))


@described
def batch_picture(batch: dict[str, torch.Tensor]) -> Chart:
    """A padded batch: which of its positions are padding, only read, learned, and the end token.

    Args:
        batch: with `attention_mask` and `labels`, each of shape (rows, tokens).
    """
    learned = batch["labels"] != IGNORED
    last = learned & ~learned.roll(-1, 1)
    figure, axes = new_figure(height=2.6)
    colours = ListedColormap(["white", READ, LEARNED, TRAINED])
    axes.imshow(batch["attention_mask"] + learned + last, aspect="auto", cmap=colours, interpolation="nearest")
    axes.set(xlabel="position (white: padding)", ylabel="row")
    axes.grid(visible=False)
    headline(figure, f"{learned.float().mean():.0%} of the positions are learned: each row's answer and its end token")
    return figure
