"""A comparison as one web page that needs no other file: what it says first, then tables and charts."""

import html
from collections.abc import Iterable
from pathlib import Path
from string import Template

import pandas as pd

from tlkit.evidence.comparison import Comparison
from tlkit.reports.conclusions import conclusions
from tlkit.reports.figure import Chart
from tlkit.reports.tables import NAMED_BY_WORDS, brief, notes_on, readable

TEMPLATE = Path(__file__).with_name("comparison_page.html")
LEGEND = (
    "Perplexity is that of the held-out test documents; lower is better. In brackets and in columns with two figures: "
    "95% intervals, over documents and seeds for differences of two strategies, and corrected for the number of pairs. "
    "A rank is given where these differences allow it; “tied 2-4” leaves the ranks 2, 3 and 4 open."
)


def comparison_page(comparison: Comparison, figures: dict[str, Chart], provenance: dict[str, str]) -> str:
    """Write a comparison as HTML.

    The short table is that of the terminal; all other columns are there on demand. Headings sort.

    Args:
        comparison: what `compare` returned.
        figures: its charts, by name.
        provenance: what the numbers depend on, in words.

    Returns:
        The page. Text of models, plugins and file names is escaped.
    """
    made, verdicts = comparison.provenance, conclusions(comparison)
    title = f"Comparison of strategies: {made['model']} on {made['corpus']}"
    failed = [f"Failed: {name}: {text.splitlines()[-1]}" for name, text in comparison.failures.items()]
    key, all_columns = brief(comparison.table), readable(comparison.table)
    table = key.join(all_columns[[name for name in all_columns if name not in key]]).set_index("strategy")
    with pd.option_context("display.max_colwidth", None):
        rows = table.rename_axis(index=None, columns="strategy").to_html(border=0)
    words = [place for place, name in enumerate(table, 2) if name in NAMED_BY_WORDS]
    values = {
        "title": html.escape(title),
        "about": html.escape(
            f"{len(comparison.table)} rows, {made['seeds']} seeds, profile {made['profile']}, {made['date']}"
        ),
        "may": _list(verdicts.may) if verdicts.may else "<p>Nothing: see below.</p>",
        "may_not": _list(verdicts.may_not),
        "notes": _list([*failed, *notes_on(comparison.table)]),
        "count": str(table.shape[1] + 1),
        "beyond": str(key.shape[1] + 1),
        "words": ", ".join(f"td:nth-child({place})" for place in words),
        "table": rows,
        "legend": html.escape(LEGEND),
        "charts": "\n".join(_figure(number, figure) for number, figure in enumerate(figures.values(), 1)),
        "provenance": "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in provenance.items()),
    }
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(values)


def _list(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def _figure(number: int, figure: Chart) -> str:
    picture = f'<img alt="{html.escape(figure.alt)}" src="data:image/png;base64,{figure.png()}">'
    return f"<figure>{picture}<figcaption>Figure {number}. {html.escape(figure.about)}</figcaption></figure>"
