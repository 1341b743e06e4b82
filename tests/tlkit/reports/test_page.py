"""What a report says follows from its intervals, and the page is whole, safe and readable on any screen."""

import re
from html.parser import HTMLParser

import pytest
from planted_comparison import planted_comparison

from tlkit.reports.charts import CHARTS
from tlkit.reports.conclusions import conclusions
from tlkit.reports.export import export
from tlkit.reports.tables import brief, readable

EFFECTS = {"full": (-0.5, 0.3, 0), "lora": (-0.5, 0.0, 40), "last_layers": (-0.3, -0.2, 0), "bitfit": (0.0, 0.1, 0)}


@pytest.fixture(scope="module")
def comparison():
    return planted_comparison(EFFECTS)


def said_of(sentences: tuple[str, ...], beginning: str) -> str:
    found = [sentence for sentence in sentences if sentence.startswith(beginning)]
    assert len(found) == 1, sentences
    return found[0]


def test_each_planted_effect_is_in_its_sentence_and_nothing_else_is(comparison):
    found = conclusions(comparison)
    assert set(re.findall(r"[a-z_]+(?= \()", said_of(found.may, "A lower perplexity on the 40 test"))) == {
        "full",
        "lora",
        "last_layers",
    }
    assert "full (39%)" in said_of(found.may, "A lower perplexity on the 40 test")  # 1 - exp(-0.5)
    assert "with bitfit:" in said_of(found.may_not, "Whether perplexity changes at all")
    worse, better = (said_of(found.may, f"A {word} perplexity on general") for word in ("higher", "lower"))
    assert worse.endswith("than before: full (30%) and bitfit (10%).") and better.endswith("last_layers (20%).")
    assert "with lora:" in said_of(found.may_not, "Whether general text is forgotten")
    assert said_of(found.may, "More questions").endswith("than before: lora (20 points).")
    open_ = said_of(found.may_not, "That more or fewer questions")
    assert "with full, last_layers and bitfit:" in open_ and "the changes are +0.0 to +0.0 points" in open_
    best = min(("full", "lora"), key=comparison.table.set_index("strategy").perplexity.get)
    other = {"full": "lora", "lora": "full"}[best]
    assert f"{best} reaches a lower perplexity than last_layers and bitfit." in found.may
    assert said_of(found.may_not, "Whether full is" if best == "full" else "Whether lora is").startswith(
        f"Whether {best} is better than {other}:"
    )
    assert "In all, 5 of 6 pairs of strategies can be told apart." in found.may
    assert said_of(found.may_not, "Whether the order").endswith("planted, rust, 8 training documents and 1 epoch.")


def test_of_a_single_strategy_questions_are_spoken_of_in_the_singular():
    found = conclusions(planted_comparison({"full": EFFECTS["full"]}))
    open_ = said_of(found.may_not, "That more or fewer questions")
    assert open_.endswith("than before with full: the change is +0.0 points, and its interval has zero in it.")


def test_with_one_seed_nothing_is_concluded():
    found = conclusions(planted_comparison(EFFECTS, seeds=1))
    assert found.may == () and said_of(found.may_not, "By how much another seed")
    assert said_of(found.may_not, "Which strategy is better")


def test_rates_that_were_not_tuned_decide_nothing_between_strategies():
    found = conclusions(planted_comparison(EFFECTS, tuned=False))
    assert not any("reaches a lower" in sentence or "told apart" in sentence for sentence in found.may)
    assert said_of(found.may_not, "How good full, lora, last_layers and bitfit can be")


def test_equal_strategies_are_never_said_to_differ():
    for change in (0.0, -0.5):
        found = conclusions(planted_comparison(dict.fromkeys(["full", "lora", "dora"], (change, 0.0, 0))))
        assert not any("reaches" in sentence for sentence in found.may)
        assert any(sentence.startswith("A lower") for sentence in found.may) == (change < 0)


def test_a_classifier_is_judged_against_one_class_for_all():
    comparison = planted_comparison(
        {"full": (0, 0, 0)}, balanced_accuracy=0.5, balanced_accuracy_low=0.4, balanced_accuracy_high=0.6
    )
    comparison.provenance["classes"] = 4
    assert said_of(conclusions(comparison).may, "A better balanced accuracy").endswith("has (25%): full.")
    comparison.provenance["classes"] = 2
    assert said_of(conclusions(comparison).may_not, "That the classes").endswith("by full.")


def test_the_short_table_has_six_columns_beside_the_strategy(comparison):
    shown = brief(comparison.table)
    columns = ["strategy", "perplexity", "against full", "rank", "general text", "seconds", "peak MB"]
    assert list(shown) == columns
    cell = shown.set_index("strategy")["against full"]["last_layers"]
    row = readable(comparison.table).set_index("strategy").loc["last_layers"]
    assert cell == f"+{row['difference']} ({row['of the difference']})" and cell.startswith("+1")
    assert shown.set_index("strategy")["against full"]["full"] == ""


class Links(HTMLParser):
    """Everything that a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found, self.tags = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.found += [value for name, value in attributes if name in ("src", "href", "action", "data")]


def test_the_page_needs_no_other_file_and_runs_no_code_of_others(tmp_path, monkeypatch):
    drawn = ("perplexity", "pairs")
    monkeypatch.setattr("tlkit.reports.export.CHARTS", {name: CHARTS[name] for name in drawn})
    name = 'a<script>alert("1")</script>&$title'
    comparison = planted_comparison(EFFECTS, model=name, impossible={"ia3": "no <b>projection</b> here"})
    names = {path.name for path in export(comparison, tmp_path)}
    assert {"summary.csv", "summary.tex", "comparison.html"} <= names
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    links = Links()
    links.feed(page)
    assert links.found and all(link.startswith("data:image/png;base64,") for link in links.found)
    assert links.tags.count("script") == 1 and "b" not in links.tags and "alert(" in page
    assert links.tags.count("figcaption") == links.tags.count("img") == links.tags.count("figure") == 2
    assert "no &lt;b&gt;projection&lt;/b&gt; here" in page
    assert all(part in page for part in ("What may not be concluded", "Provenance", "python -m tlkit"))
    latex = (tmp_path / "summary.tex").read_text(encoding="utf-8")
    assert "last\\_layers &" in latex and "\\toprule" in latex and latex.count(" \\\\\n") == 1 + len(comparison.table)


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (400, 800)])
def test_the_page_in_a_real_browser(width, height, browser, tmp_path, monkeypatch):
    monkeypatch.setattr("tlkit.reports.export.CHARTS", {"perplexity": CHARTS["perplexity"]})
    export(planted_comparison(EFFECTS | {"discriminative_rates": (-0.6, 0.1, 0)}), tmp_path)
    page, wrong = browser.new_page(viewport={"width": width, "height": height}), []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto((tmp_path / "comparison.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("thead th:visible").count() == 7
    page.locator("#all").check()
    assert page.locator("thead th:visible").count() > 20
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelector('.frame').scrollLeft = 600")
    frame, name = page.locator(".frame").bounding_box(), page.locator("tbody th").first.bounding_box()
    assert abs(name["x"] - frame["x"]) < 3  # the names stay where they are
    sorted_ways = []
    for _ in range(2):
        page.locator("thead button", has_text="perplexity").first.click()
        cells = page.locator("tbody td:nth-child(2)").all_inner_texts()
        sorted_ways.append([float(cell.replace(",", "")) for cell in cells])
    assert sorted_ways[0] == sorted(sorted_ways[0]) and sorted_ways[1] == sorted_ways[0][::-1]
    page.locator("thead button", has_text="rank").click()  # some have none: they stay at the end
    ranks = page.locator("tbody td:nth-child(4)").all_inner_texts()
    assert ranks[0] == "1" and ranks[-1] == ""
    assert page.locator("[aria-sort=ascending]").count() == 1 and not wrong
