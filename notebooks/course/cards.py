"""How a verdict looks in a notebook: coloured, with a sign and a word beside the colour, and whole without Python.

What is folded into a card opens by a click or a key, also in an exported or reopened notebook.
"""

import html
from collections.abc import Sequence

from markdown_it import MarkdownIt

# A sign, a word, and a colour on which white is readable (4.5 to 1 and more).
RIGHT, NOT_YET = ("✓", "right", "#0067a0"), ("✗", "not yet", "#a83f00")
BUTTON = "display:inline-block;cursor:pointer;border:1px solid;border-radius:.3em;padding:.1em .6em;margin-top:.3em"


def card(passed: bool, title: str, text: str, hints: Sequence[str] = ()) -> str:
    """Draw a card as HTML that needs no other file and no program.

    Args:
        passed: whether the answer is right.
        title: what it is about, as plain text.
        text: what is said, in Markdown.
        hints: in Markdown; each is folded into the one before.
    """
    sign, word, colour = RIGHT if passed else NOT_YET
    badge = f"background:{colour};color:#fff;border-radius:.2em;padding:0 .45em"
    frame = f"border-left:.4em solid {colour};padding:.2em .9em;margin:.4em 0;max-width:50em;line-height:1.45"
    head = f'<strong><span style="{badge}">{sign} {word}</span> {html.escape(title)}</strong>'
    inside = f"{head}{rendered(text[:1].upper() + text[1:])}{_folded(hints)}"
    return f'<div role="status" style="{frame}">{inside}</div>'


def rendered(text: str) -> str:
    """Markdown as HTML; HTML in it is shown as text."""
    return MarkdownIt("commonmark", {"html": False}).render(text).strip()


def _folded(hints: Sequence[str]) -> str:
    inner = ""
    for number in reversed(range(len(hints))):
        name = "A hint" if number == 0 else f"Hint {number + 1} of {len(hints)}"
        inner = f'<details><summary style="{BUTTON}">{name}</summary>{rendered(hints[number])}{inner}</details>'
    return inner
