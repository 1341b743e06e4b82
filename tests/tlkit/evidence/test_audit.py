"""What a published table can show: the arithmetic against scipy, false alarms, and what is refused."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tlkit.cli import main
from tlkit.evidence.audit import audit, items_needed, seeds_needed
from tlkit.settings import DATA


def shares(*right, items=1000):
    return pd.DataFrame({"model": [f"m{place}" for place in range(len(right))], "accuracy": np.array(right) / items})


def test_a_pair_of_shares_is_the_z_test_and_its_interval_excludes_zero_where_it_is_separated():
    found = audit(shares(600, 560, 500, 499), "accuracy", 1000)
    for pair in found.pairs.itertuples():
        one, other = (found.table.set_index("name").value[name] for name in (pair.first, pair.second))
        error = math.sqrt((one * (1 - one) + other * (1 - other)) / 1000)
        assert pair.p == pytest.approx(2 * stats.norm.sf(abs(one - other) / error))
        assert (pair.low > 0 or pair.high < 0) == pair.separated
    assert found.pairs.p_adjusted.min() == pytest.approx(6 * found.pairs.p.min())
    assert found.table["rank"].tolist() == ["tied 1-2", "tied 1-2", "tied 3-4", "tied 3-4"]
    assert found.separated + found.undecided + found.out_of_reach == 6


def test_means_are_welchs_test_for_many_items_and_lower_can_be_better():
    table = pd.DataFrame({"model": ["a", "b"], "loss": [2.0, 2.08], "sd": [1.0, 1.5], "n": [4000, 3000]})
    found = audit(table, "loss", "n", deviation="sd", lower_is_better=True)
    welch = stats.ttest_ind_from_stats(2.0, 1.0, 4000, 2.08, 1.5, 3000, equal_var=False)
    assert found.pairs.p[0] == pytest.approx(welch.pvalue, rel=0.02)
    assert found.table.name.tolist() == ["a", "b"] and found.table["rank"].tolist() == ["1", "2"]
    assert found.table["items"].tolist() == [4000, 3000]
    assert "Rows with other numbers of items" in " ".join(found.assumptions)


def test_equal_rows_are_separated_in_at_most_5_percent_of_tables_and_more_seldom_where_they_share_items():
    chance = np.random.default_rng(0)
    alone, together = 0, 0
    for _ in range(100):
        alone += audit(shares(*chance.binomial(1000, 0.5, 8)), "accuracy", 1000).separated > 0
        hard = chance.random(1000)  # a question's, for all rows
        answers = (hard + chance.normal(0, 0.3, (8, 1000)) < 0.5).sum(axis=1)
        together += audit(shares(*answers), "accuracy", 1000).separated > 0
    assert alone <= stats.binom.ppf(0.999, 100, 0.05) and together <= alone


@pytest.mark.parametrize("items", [(100, 100, 100), (30, 1000, 1000)])
@pytest.mark.parametrize("share", [0.005, 0.95])
def test_equal_rows_near_0_and_1_are_separated_in_hardly_more_than_5_percent_of_tables(items, share):
    """The normal distribution adds a hundredth at most where there are enough items, as `ENOUGH_ITEMS` says."""
    chance = np.random.default_rng(0)
    tables = chance.binomial(items, share, (100, len(items))) / items
    columns = {"model": list("abc")[: len(items)], "n": items}
    alarms = sum(audit(pd.DataFrame(columns | {"accuracy": one}), "accuracy", "n").separated > 0 for one in tables)
    assert alarms <= stats.binom.ppf(0.999, 100, 0.06)


@pytest.mark.parametrize(
    ("right", "items", "correlation"),
    [((0, 4), 30, 0), ((996, 1000), 1000, 0), ((495, 500), 1000, 0.99), ((0, 5, 6, 8, 30), 1000, 0.5)],
)
def test_no_pair_is_separated_whose_most_favourable_answers_mcnemars_test_could_not_separate(right, items, correlation):
    found = audit(shares(*right, items=items), "accuracy", items, correlation=correlation)
    bounded = []
    for pair in found.pairs.itertuples():
        more = round(abs(pair.difference) * items)
        bounded.append(max(pair.p, stats.binomtest(more, more).pvalue if more else 1))
        assert pair.possible or not pair.separated
        assert (pair.low > 0 or pair.high < 0) == pair.separated
    assert found.pairs.p_adjusted.to_numpy() == pytest.approx(np.minimum(np.array(bounded) * len(bounded), 1))
    if len(right) == 2:
        assert (found.separated, found.out_of_reach) == (0, 1) and found.pairs.p[0] < 0.05


def test_rows_with_other_items_are_no_surer_than_the_pooled_test_of_two_shares():
    table = pd.DataFrame({"model": ["a", "b"], "accuracy": [0, 0.03], "n": [30, 1000]})
    pooled = stats.chi2_contingency([[0, 30], [30, 970]], correction=False).pvalue
    found = audit(table, "accuracy", "n")
    assert found.pairs.p[0] == pytest.approx(pooled) and found.separated == 0 and pooled > 0.3


def test_a_known_correlation_gives_the_error_of_the_pairs():
    chance = np.random.default_rng(1)
    hard = chance.random(5000)
    one, other = ((hard + chance.normal(0, 0.4, 5000) < place).astype(float) for place in (0.5, 0.53))
    table = shares(int(one.sum()), int(other.sum()), items=5000)
    found = audit(table, "accuracy", 5000, correlation=float(np.corrcoef(one, other)[0, 1]))
    paired = abs((one - other).mean()) / ((one - other).std() / math.sqrt(5000))
    assert found.pairs.p[0] == pytest.approx(2 * stats.norm.sf(paired), rel=1e-6)
    assert "correlate by" in " ".join(found.assumptions)


def test_a_plan_finds_what_it_promises():
    items = items_needed(0.05, 0.5)
    chance = np.random.default_rng(0)
    one, other = (chance.binomial(items, share, 4000) / items for share in (0.525, 0.475))
    error = np.sqrt((one * (1 - one) + other * (1 - other)) / items)
    assert (np.abs(one - other) > 1.96 * error).mean() == pytest.approx(0.8, abs=0.02)
    seeds = seeds_needed(1.0, 1.0)
    drawn = chance.normal(0, 1, (4000, 2, seeds)) + np.array([[0.0], [1.0]])
    p = stats.ttest_ind(drawn[:, 0], drawn[:, 1], axis=1).pvalue
    assert seeds == 17 and (p < 0.05).mean() == pytest.approx(0.8, abs=0.02)
    with pytest.raises(ValueError, match="more than 10,000 seeds"):
        seeds_needed(1e-6, 1.0)


REFUSED = [
    ("a,accuracy\nx,0.5\ny,0.6", ["--metric", "acc"], "no column 'acc': expected one of 'a', 'accuracy'"),
    ("a,accuracy\nx,0.5", [], "the table has 1 row(s): expected at least 2 to compare"),
    ("a,accuracy\nx,0.5\nx,0.6", [], "column 'a' has 'x', which is no row's name or that of several"),
    ("a,accuracy,accuracy\nx,0.5,0.6\ny,0.6,0.7", [], "the table has 2 columns 'accuracy'"),
    ("a,accuracy\nx,50\ny,60", [], "row 'x': accuracy is '50', expected 0 to 1, or percent (--percent)"),
    ("a,accuracy\nx,0.5\ny,0.6", ["--percent"], "row 'x': accuracy is '0.5', expected 0, or above 1 to 100"),
    ("a,accuracy\nx,True\ny,False", [], "row 'x': accuracy is 'True', expected a number"),
    ('a,accuracy\nx,"62,5"\ny,60', ["--percent"], "is '62,5', expected a number such as 1062.5, without comma"),
    ("a,accuracy\nx,0.5\ny,0.6", ["--items", "10"], "row 'x': items is '10.0', expected a whole number of at least 30"),
    ('a,accuracy,n\nx,0.5,"1,000"\ny,0.6,100', ["--items", "n"], "n is '1,000', expected a whole number without"),
    ("a,accuracy\nx,0.500\ny,0.499", ["--items", "999"], "accuracy is '0.500', expected what a whole number of items"),
    ("a,accuracy,sd\nx,0.5,-1\ny,0.6,1", ["--deviation", "sd"], "row 'x': sd is '-1', expected at least 0"),
    ("a,accuracy,sd\nx,2,0\ny,3,0", ["--deviation", "sd"], "sd is 0 in every row: expected standard deviations"),
    ("a,accuracy\nx,62,5\ny,60,0", ["--percent"], "the line 'x,62,5' has 3 fields, expected 2, one for each column"),
    ("\n  \n", [], "is empty, expected a CSV file"),
    ("a,accuracy\nx,0.5\ny,0.6", ["--difference", "2"], "difference=2: expected 5e-07 to 1"),
]


@pytest.mark.parametrize(("text", "options", "expected"), REFUSED)
def test_a_table_that_cannot_support_it_is_refused_in_one_line(text, options, expected, tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text(text)
    words = ["audit", str(path), "--metric", "accuracy", "--items", "100", *options]  # of two, the last one counts
    assert main(words) == 2
    heard = capsys.readouterr().err.splitlines()
    assert len(heard) == 1 and expected in heard[0], heard


ITEMS = ["--items", "n"]
READ = [
    ("\ufeffmodel, accuracy ,n\nNone,0.5,1000\n\nNA, 0.6 ,1000\nnull,0.70,1000.0\n,,\n", ITEMS, ["null", "NA", "None"]),
    ("model\taccuracy\tn\na\t0.5\t1e3\nb, c\t0.6\t1000\nc\t0.7\t1000\n", ITEMS, ["c", "b, c", "a"]),
    (
        'model,accuracy,n\n"a, big",0.5,1000\n "b ""large""", 0.6,1000\n模型,0.7,1000\n',
        ITEMS,
        ["模型", 'b "large"', "a, big"],
    ),
    ("model;accuracy;n\n1,5;0.5;1000\n1,50;.6;1000\n2,5;0.700;1000", ITEMS, ["2,5", "1,50", "1,5"]),
    ("\n# a board\nplace,model,accuracy\n1,a,70%\n1,b,60.0 %\n1,c ,50%", ["--percent"], ["a", "b", "c"]),
    ("model,accuracy\na,0.699999988079071\nb,0.6000000238418579\nc,0.5", [], ["a", "b", "c"]),  # of 32 bits
]


@pytest.mark.parametrize(("text", "options", "names"), READ)
def test_names_are_read_as_they_are_written_and_numbers_as_they_are_meant(text, options, names, tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    assert main(["audit", str(path), "--metric", "accuracy", "--items", "1000", *options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["name"] for row in rows] == names and [row["items"] for row in rows] == [1000] * 3
    assert [row["value"] for row in rows] == pytest.approx([0.7, 0.6, 0.5])


def test_rounded_scores_leave_open_what_the_answers_were():
    """Of 14,042 items, 0.505 to 0.515 are 7,092 to 7,231."""
    texts = pd.DataFrame({"model": ["a", "b"], "accuracy": ["0.51", "0.51"]})
    found = audit(texts, "accuracy", 14042)
    assert found.pairs.possible[0] and (found.separated, found.undecided, found.out_of_reach) == (0, 1, 0)
    assert "If scores were rounded to 0.01, a row may have answered up to 139 items more" in " ".join(found.assumptions)
    in_percent = audit(texts.assign(accuracy=["51", "51.2"]), "accuracy", 14042, percent=True)
    assert "rounded to 0.1, a row may have answered up to 13 items more" in " ".join(in_percent.assumptions)
    exact = audit(texts.assign(accuracy=["0.510", "0.511"]), "accuracy", 1000)
    assert "rounded" not in " ".join(exact.assumptions) and exact.out_of_reach == 1


def test_means_are_out_of_reach_where_not_even_equal_items_would_separate_them():
    table = pd.DataFrame({"model": ["a", "b"], "score": [5.0, 5.05], "sd": [1.0, 2.0]})
    found = audit(table, "score", 100, deviation="sd")
    assert not found.pairs.possible[0] and found.out_of_reach == 1, "the best error is (2 - 1) / 10"
    assert audit(table.assign(score=[5.0, 5.2]), "score", 100, deviation="sd").undecided == 1
    assert audit(table.assign(sd=1.0), "score", 100, deviation="sd").undecided == 1
    assert "sd is the standard deviation over items" in " ".join(found.assumptions)


def test_a_correlation_is_said_and_the_least_certain_pair_is_one_of_the_table():
    table = pd.DataFrame({"model": list("abc"), "accuracy": [0.5, 0.54, 0.51], "n": [1000, 1000, 500]})
    found = audit(table, "accuracy", "n", correlation=0.5)
    said = " ".join(found.assumptions)
    assert (
        "Rows with other numbers of items were" in said and "the same number of items answered the same items" in said
    )
    assert "correlate by 0.5" in said and found.least_certain == ("c", "a")
    error = math.sqrt(0.25 / 1000 + 0.2499 / 500)
    assert found.detectable["one_pair"] == pytest.approx(
        (stats.norm.isf(0.025) + stats.norm.isf(0.2)) * error, rel=2e-3
    )


def test_a_difference_is_in_the_unit_of_the_metric(tmp_path, capsys):
    percent = shares(625, 600).assign(accuracy=[62.5, 60.0])
    found, same = audit(percent, "accuracy", 1000, percent=True), audit(shares(625, 600), "accuracy", 1000)
    assert found.plan(2).equals(same.plan(0.02)) and found.plan().equals(same.plan(0.01))
    assert found.sentences(0.04) == same.sentences(0.0004) and "of 0.04 points in" in found.sentences(0.04)[3]
    assert "of 0.04 points in" in found.sentences(0.04)[4]
    path = tmp_path / "table.csv"
    percent.to_csv(path, index=False)
    line = ["audit", str(path), "--metric", "accuracy", "--items", "1000", "--percent", "--difference", "2"]
    assert main(line) == 0
    needed = items_needed(0.02, math.sqrt(0.24))
    said = " ".join(capsys.readouterr().out.split())
    assert f"A difference of 2.0 points in one pair would need {needed:,} items (answers that correlate by 0)" in said


def test_where_no_row_varies_the_seeds_alone_are_planned(tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text("model,accuracy\na,1\nb,1\nc,0\n")
    line = ["audit", str(path), "--metric", "accuracy", "--items", "1000"]
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["detectable"] == {"one_pair": None, "all_pairs": None}
    assert [row["needed"] for row in found["plan"] if row["of"] == "seeds"] == [6, 17, 64] and len(found["plan"]) == 3
    assert main(line) == 0
    said = capsys.readouterr().out
    low = stats.binomtest(1000, 1000).proportion_ci(method="wilson").low
    assert f" {low:.5f} " in said and "0.0 points" not in said
    assert "so what difference these or more items would find cannot be said" in " ".join(said.split())


@pytest.mark.parametrize("power", [-80, 0, 7])
def test_means_of_any_size_fit_on_a_line_with_three_digits_of_their_error(power, tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text(f"model,loss,sd\na,2e{power},1e{power}\nb,3e{power},1e{power}\n")
    assert main(["audit", str(path), "--metric", "loss", "--items", "1000", "--deviation", "sd"]) == 0
    heard = capsys.readouterr()
    name, value, error, low, *_ = heard.out.splitlines()[1].split()
    assert heard.err == "" and len(heard.out.splitlines()[1]) < 80 and name == "b"
    assert [float(value), float(error), float(low)] == pytest.approx(
        [3 * 10.0**power, 10.0**power / math.sqrt(1000), (3 - 1.96 / math.sqrt(1000)) * 10.0**power], rel=0.002
    )


def test_the_command_says_it_to_people_and_to_machines(tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text("model,score\nlarge,62\nmedium,50\nsmall,48.5\n")
    line = ["audit", str(path), "--metric", "score", "--items", "1000", "--percent"]
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["rank"] for row in found["rows"]] == ["1", "tied 2-3", "tied 2-3"]
    assert (found["separated"], len(found["pairs"]), len(found["assumptions"])) == (2, 3, 4)
    assert {row["of"] for row in found["plan"]} == {"items", "seeds"}
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "2 of 3 pairs can be told apart by test sampling alone" in said
    assert "covariance of a pair is taken as zero" in " ".join(said.split())


def test_the_leaderboard_is_whole_and_its_reruns_end_in_its_figures():
    names = ("peft_metamathqa", "peft_metamathqa_reruns")
    board, runs = (pd.read_csv(DATA / "leaderboards" / f"{name}.csv") for name in names)
    assert len(board) == 63 and board.experiment.is_unique and (board.seed == 0).all() and (runs.seed == 0).all()
    last = runs.drop_duplicates("experiment", keep="last").set_index("experiment").test_accuracy
    both = board.set_index("experiment").test_accuracy.to_frame("board").join(last, how="inner")
    assert len(both) == 51 and (both.board == both.test_accuracy).all()
