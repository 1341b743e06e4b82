"""The pictures of lesson 11: which tokens of a conversation are learned, and a padded batch."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from course.drawing import PASSED, SPARED, TRAINED
from tlkit.examples import IGNORED
from tlkit.reports.figure import Chart, described, headline, new_figure

# Marked by a line as well as by colour, for those who do not tell colours apart and for black-and-white print.
STYLES = {
    "only read (label -100)": f"background:{SPARED};color:#555;border-bottom:2px dotted #999",
    "learned": f"background:{PASSED};color:#111;border-bottom:2px solid {TRAINED}",
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
    """A padded batch: which of its places are padding, only read, and learned.

    Args:
        batch: with `attention_mask` and `labels`, each of shape (rows, tokens).
    """
    learned = batch["labels"] != IGNORED
    figure, axes = new_figure(height=2.6)
    axes.imshow(batch["attention_mask"] + learned, aspect="auto", cmap="Blues", interpolation="nearest")
    axes.set(xlabel="place in the row (white: padding, light: only read, dark: learned)", ylabel="row")
    headline(figure, f"{learned.float().mean():.0%} of the places are learned: the end of each row, before its padding")
    return figure
