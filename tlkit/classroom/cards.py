"""How a verdict looks in a notebook: coloured, with a sign and a word beside the colour, and whole without Python.

Hints are folded into the card. They open by a click or a key also in a printed, exported or reopened notebook.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """A sign, a word, and a colour on which white is readable (4.5 to 1 and more)."""

    sign: str
    word: str
    colour: str


RIGHT = Look("✓", "right", "#0067a0")
NOT_YET = Look("✗", "not yet", "#a83f00")
NOTE = Look("i", "note", "#5a5a5a")
BUTTON = "display:inline-block;cursor:pointer;border:1px solid;border-radius:.3em;padding:.1em .6em;margin-top:.3em"


def card(look: Look, title: str, text: str, hints: Sequence[str] = ()) -> str:
    """Draw a card as HTML that needs no other file and no program.

    Args:
        look: of `RIGHT`, `NOT_YET` and `NOTE`.
        title: what it is about, as plain text.
        text: what is said, in Markdown.
        hints: in Markdown; each is folded into the one before.
    """
    badge = f"background:{look.colour};color:#fff;border-radius:.2em;padding:0 .45em"
    frame = f"border-left:.4em solid {look.colour};padding:.2em .9em;margin:.4em 0;max-width:50em;line-height:1.45"
    head = f'<strong><span style="{badge}">{look.sign} {look.word}</span> {html.escape(title)}</strong>'
    return f'<div role="status" style="{frame}">{head}{rendered(text[:1].upper() + text[1:])}{_folded(hints)}</div>'


def rendered(text: str) -> str:
    """Markdown as HTML; HTML in it is shown as text."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).render(text).strip()


def _folded(hints: Sequence[str]) -> str:
    inner = ""
    for number in reversed(range(len(hints))):
        name = "A hint" if number == 0 else f"Hint {number + 1} of {len(hints)}"
        inner = f'<details><summary style="{BUTTON}">{name}</summary>{rendered(hints[number])}{inner}</details>'
    return inner
