"""What is exported is whole and safe, and what people read first is short."""

from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from tlkit.evidence.comparison import Comparison, summary
from tlkit.evidence.learning_rates import LearningRate
from tlkit.evidence.statistics import compare_pairs
from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports.charts import CHARTS
from tlkit.reports.export import brief, export

# Of each strategy: the change of nats per token, and the share by which perplexity on general text rises.
EFFECTS = {"full": (-0.5, 0.3), "lora": (-0.5, 0.0), "last_layers": (-0.3, -0.2), "bitfit": (0.0, 0.1)}


def planted_comparison(effects, model="planted", impossible=None):
    """A comparison without any training, whose runs differ by what is given and by a hundredth of a nat of noise."""
    draw, count = np.random.default_rng(0), 40
    base, tokens = draw.normal(4.5, 0.2, count), draw.integers(50, 150, count)
    runs, documents = [], []
    for name, (change, general) in {ZERO_SHOT: (0.0, 0.0), **effects, CONTROL: (2.0, 20.0)}.items():
        for seed in range(1 if name in (ZERO_SHOT, CONTROL) else 3):
            nats = (base + change + draw.normal(0, 0.01, count)) * tokens
            parts = {"document": range(count), "nats": nats, "tokens": tokens}
            documents.append(pd.DataFrame({"strategy": name, "seed": seed} | parts))
            run = dict.fromkeys(("perplexity", "perplexity_low", "perplexity_high"), np.exp(nats.sum() / tokens.sum()))
            run |= {"perplexity_before": 90.0, "general_before": 20.0, "general": 20.0 * (1 + general)}
            run |= {"bits_per_byte": 1.0, "trainable_parameters": 1000, "trainable_percent": 50.0}
            run |= {"seconds": 2.0, "peak_memory_mb": 20.0, "learning_rate": 1e-3, "context": 64.0}
            runs.append({"strategy": name, "seed": None if name == ZERO_SHOT else seed} | run)
    runs, documents = pd.DataFrame(runs), pd.concat(documents)
    pairs = compare_pairs(documents[~documents.strategy.isin([ZERO_SHOT, CONTROL])])
    rates = {name: LearningRate(1e-3, "planted", True, 8) for name in (*effects, CONTROL)}
    table = summary(runs, pairs, rates, "full", impossible or {}).assign(against="full")
    made = {"model": model, "corpus": "rust", "profile": "test", "seeds": 3, "date": "2026-11-23 05:00 UTC"}
    made |= {"command": "python -m tlkit compare"}
    return Comparison(table, runs, documents, pairs, pd.DataFrame(), {}, made)


def test_the_short_table_has_six_columns_beside_the_strategy():
    table = planted_comparison(EFFECTS).table
    shown = brief(table)
    columns = ["strategy", "perplexity", "against full", "rank", "general text", "seconds", "peak MB"]
    assert list(shown) == columns
    cell = shown.set_index("strategy")["against full"]["last_layers"]
    row = table.set_index("strategy").loc["last_layers"]
    assert (
        cell == f"{row.difference:+.2f} ({row.difference_low:.2f} to {row.difference_high:.2f})" and row.difference > 1
    )
    assert shown.set_index("strategy")["against full"]["full"] == ""


class Links(HTMLParser):
    """Everything that a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found, self.tags = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.found += [value for name, value in attributes if name in ("src", "href", "action", "data")]


def test_the_page_needs_no_other_file_and_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.setattr("tlkit.reports.export.CHARTS", {name: CHARTS[name] for name in ("perplexity", "cost")})
    name = 'a<script>alert("1")</script>&$title'
    comparison = planted_comparison(EFFECTS, model=name, impossible={"ia3": "no <b>projection</b> here"})
    names = {path.name for path in export(comparison, tmp_path)}
    assert {"summary.csv", "summary.tex", "comparison.html", "cost.png", "perplexity.svg"} <= names
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    links = Links()
    links.feed(page)
    assert links.found and all(link.startswith("data:image/png;base64,") for link in links.found)
    assert not {"script", "b"} & set(links.tags) and "alert(" in page
    assert links.tags.count("figcaption") == links.tags.count("img") == links.tags.count("figure") == 2
    assert "no &lt;b&gt;projection&lt;/b&gt; here" in page and "Provenance" in page and "python -m tlkit" in page
    latex = (tmp_path / "summary.tex").read_text(encoding="utf-8")
    assert "last\\_layers &" in latex and "\\toprule" in latex and latex.count(" \\\\\n") == 1 + len(comparison.table)


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (400, 800)])
def test_the_page_in_a_real_browser(width, height, browser, tmp_path, monkeypatch):
    monkeypatch.setattr("tlkit.reports.export.CHARTS", {"perplexity": CHARTS["perplexity"]})
    export(planted_comparison(EFFECTS | {"discriminative_rates": (-0.6, 0.1)}), tmp_path)
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto((tmp_path / "comparison.html").as_uri())
    assert page.locator("thead th:visible").count() == 7
    page.locator("summary").click()
    assert page.locator("thead th:visible").count() > 15
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('.frame')[1].scrollLeft = 600")
    frame, name = page.locator(".frame").nth(1).bounding_box(), page.locator("details tbody th").first.bounding_box()
    assert abs(name["x"] - frame["x"]) < 3  # the names stay where they are
