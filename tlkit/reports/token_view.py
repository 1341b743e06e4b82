"""A training example token by token: what is only read, what is learned, and where an answer ends."""

import html
from dataclasses import dataclass

import pandas as pd

from tlkit.examples import IGNORED, PADDING, Examples
from tlkit.reports.drawing import PASSED, SPARED, TRAINED

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

    Raises:
        ValueError: for a row that is not there, or examples with classes.
    """
    if examples.classifies:
        raise ValueError("examples with classes have a label for each row: expected labels for tokens")
    if not 0 <= row < len(examples):
        raise ValueError(f"row {row}: expected 0 to {len(examples) - 1}")
    stops, rows = {tokenizer.eos_token_id}, []
    here = zip(*(part[row].tolist() for part in (examples.tokens, examples.labels, examples.texts)), strict=True)
    for place, (token, label, text) in enumerate(here):
        kind = "padding" if text == PADDING else "read" if label == IGNORED else "end" if label in stops else "learned"
        rows.append({"place": place, "id": token, "text": _shown(tokenizer.decode([token])), "kind": kind})
    return TokenView(pd.DataFrame(rows))


def _shown(text: str) -> str:
    """With signs for what cannot be seen."""
    return text.replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥")
