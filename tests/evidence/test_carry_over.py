"""Claims measured on two models: each figure against an independent computation, and every kind of verdict."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tlkit.evidence.carry_over import (
    CLAIMS,
    RECORDED,
    STEP_TIMES,
    carry_over,
    measure_claims,
    measure_relatives,
    recorded_carry_over,
    recorded_comparison,
    verdict,
)
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.learning_rates import CONTROL

SEEDS = (0, 1, 2)


def planted(effects: dict[str, tuple[float, float, float, float]], spread: float = 0.01) -> tuple[pd.DataFrame, ...]:
    """Runs, documents and answers of a comparison in which every effect is known, and the times of its steps.

    Args:
        effects: by strategy the change of nats per token, the share by which general perplexity rises, seconds, MB.
        spread: of the nats, over documents and seeds.
    """
    draw = np.random.default_rng(0)
    base, tokens = draw.normal(4.5, 0.2, 40), draw.integers(50, 150, 40)
    runs, documents, answers, times = [], [], [], []
    for name, (change, general, seconds, memory) in {ZERO_SHOT: (0.0, 0.0, 0.0, np.nan), **effects}.items():
        for seed in SEEDS[: 1 if name in (ZERO_SHOT, CONTROL) else None]:
            noise = 0.0 if name == ZERO_SHOT else draw.normal(0, spread, 40) + draw.normal(0, spread)
            nats = (base + change + noise) * tokens
            documents += [
                {"strategy": name, "seed": seed, "document": place, "nats": nat, "tokens": count}
                for place, (nat, count) in enumerate(zip(nats, tokens, strict=True))
            ]
            wobble = 1 + draw.normal(0, spread)
            runs.append(
                {
                    "strategy": name,
                    "seed": seed,
                    "general_before": 20.0,
                    "general": 20.0 * (1 + general * wobble),
                    "peak_memory_mb": memory,
                }
            )
            if name not in (ZERO_SHOT, CONTROL):
                times.append({"strategy": name, "turn": seed, "seconds": seconds * wobble * (1 + seed)})
            for asked, gained in (("rust", 0), ("general", -10 if change else 0)):
                correct = np.arange(100) < 50 + gained
                answers += [
                    {"strategy": name, "seed": seed, "questions": asked, "question": f"{asked}-{n}", "correct": right}
                    for n, right in enumerate(correct)
                ]
    return pd.DataFrame(runs), pd.DataFrame(documents), pd.DataFrame(answers), pd.DataFrame(times)


EFFECTS = {
    "full": (-0.7, 0.3, 100.0, 1000.0),
    "lora": (-0.6, 0.1, 80.0, 700.0),
    CONTROL: (2.0, 50.0, 100.0, 1000.0),
}


def figure(table: pd.DataFrame, claim: str, strategy: str) -> pd.Series:
    return table[(table.claim == claim) & (table.strategy == strategy)].iloc[0]


def test_every_claim_is_measured_as_by_hand():
    table = measure_claims(*planted(EFFECTS))
    assert set(table.claim) == set(CLAIMS) - {"behind lora"} and CONTROL not in set(table.strategy)
    # Noise of 0.01 nats over 40 documents and 3 seeds moves a mean by about 0.006, which is 0.6%.
    expected = {
        ("gain", "full"): 100 * (1 - np.exp(-0.7)),
        ("gain", "lora"): 100 * (1 - np.exp(-0.6)),
        ("behind full", "lora"): 100 * (np.exp(0.1) - 1),
        ("forgetting", "full"): 30.0,
        ("time", "lora"): -20.0,
        ("memory", "lora"): -30.0,
        ("general answers", "lora"): -10.0,
        ("Rust answers", "full"): 0.0,
    }
    for (claim, strategy), value in expected.items():
        found = figure(table, claim, strategy)
        assert found.value == pytest.approx(value, abs=2.0), claim
        assert found.low <= found.value <= found.high, claim
    assert figure(table, "gain", "lora").low > 0 and figure(table, "behind full", "lora").low > 0
    assert figure(table, "Rust answers", "full").low < 0 < figure(table, "Rust answers", "full").high


def test_the_gain_is_that_of_the_documents_together():
    runs, documents, answers, times = planted(EFFECTS)
    perplexity = documents.groupby("strategy").apply(lambda part: np.exp(part.nats.sum() / part.tokens.sum()))
    found = figure(measure_claims(runs, documents, answers, times), "gain", "full").value
    assert found == pytest.approx(100 * (1 - perplexity["full"] / perplexity[ZERO_SHOT]), rel=1e-9)


def test_without_questions_nothing_is_said_of_answers_and_without_times_nothing_of_time():
    runs, documents, answers, times = planted(EFFECTS)
    assert "time" not in set(measure_claims(runs, documents, answers).claim)
    assert not set(measure_claims(runs, documents, answers.iloc[:0], times).claim) & {"Rust answers", "general answers"}


@pytest.mark.parametrize("missing", ["full", ZERO_SHOT])
def test_what_claims_are_about_has_to_be_there(missing):
    runs, documents, answers, times = planted(EFFECTS)
    with pytest.raises(ValueError, match=f"{missing} has no runs"):
        measure_claims(runs[runs.strategy != missing], documents, answers, times)


RELATIVES = {"lora": (-0.6, 0.1, 80.0, 700.0), "dora": (-0.6, 0.1, 90.0, 900.0), "ia3": (-0.4, 0.02, 70.0, 600.0)}


def test_relatives_of_lora_are_measured_beside_it():
    runs, documents, _, _ = planted(RELATIVES)
    table = measure_relatives(runs, documents, ["dora", "lora", "ia3"])
    assert table.groupby("claim").strategy.agg(list).to_dict() == {
        "behind lora": ["dora", "ia3"],
        "forgetting": ["lora", "dora", "ia3"],
    }
    assert set(table.claim) <= set(CLAIMS), "what a chart can label"
    perplexity = documents.groupby("strategy").apply(lambda part: np.exp(part.nats.sum() / part.tokens.sum()))
    for name in ("dora", "ia3"):
        above = figure(table, "behind lora", name)
        assert above.value == pytest.approx(100 * (perplexity[name] / perplexity["lora"] - 1), abs=1e-6)
        assert above.low < above.value < above.high
    assert figure(table, "behind lora", "dora").low < 0 < figure(table, "behind lora", "ia3").low
    assert figure(table, "forgetting", "ia3").value == pytest.approx(2.0, abs=0.1)


def test_relatives_of_two_comparisons_are_those_of_one():
    """LoRA may have been compared on another day than the others; the untouched model is then there twice."""
    runs, documents, _, _ = planted(RELATIVES)
    untouched = [table[table.strategy == ZERO_SHOT] for table in (runs, documents)]
    together = measure_relatives(runs, documents, ["dora", "ia3"])
    parts = [pd.concat([table, twice]) for table, twice in zip((runs, documents), untouched, strict=True)]
    pd.testing.assert_frame_equal(measure_relatives(*parts, ["dora", "ia3"]), together)


@pytest.mark.parametrize("missing", ["lora", "ia3"])
def test_relatives_without_runs_are_named(missing):
    runs, documents, _, _ = planted(RELATIVES)
    with pytest.raises(ValueError, match=f"{missing} has no runs"):
        measure_relatives(runs[runs.strategy != missing], documents, ["dora", "ia3"])


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ((1, 3), (2, 4), "same"),
        ((-3, -1), (-4, -2), "same"),
        ((1, 2), (3, 4), "same direction, stronger on large"),
        ((-9, -8), (-2, -1), "same direction, stronger on small"),
        ((1, 2), (-2, -1), "opposite"),
        ((-1, 2), (1, 2), "only on large"),
        ((1, 2), (-1, 2), "only on small"),
        ((-1, 2), (-2, 1), "open on both"),
        ((np.nan, np.nan), (1, 2), "only on large"),
    ],
)
def test_verdicts(one, other, said):
    assert verdict(one, other, "small", "large") == said


def test_two_models_side_by_side():
    small = measure_claims(*planted(EFFECTS))
    large = measure_claims(*planted({**EFFECTS, "lora": (-0.6, -0.1, 80.0, 700.0), "qlora": (-0.5, 0.1, 90.0, 500.0)}))
    table = carry_over({"tiny": small, "real": large})
    assert set(table.strategy) == {"full", "lora"}, "what only one of them has says nothing"
    said = table.set_index(["claim", "strategy"]).verdict
    assert said["gain", "full"] == "same" and said["forgetting", "lora"] == "opposite"
    assert said["Rust answers", "full"] == "open on both"
    assert {f"{end}, {name}" for end in ("value", "low", "high") for name in ("tiny", "real")} <= set(table)
    with pytest.raises(ValueError, match="expected two"):
        carry_over({"tiny": small})


@pytest.mark.filterwarnings("error")
def test_equal_figures_of_all_seeds_are_no_cause_for_a_warning():
    """Peaks of memory are; a lesson's page would show the warning."""
    table = measure_claims(*planted(EFFECTS))
    assert (table.low == table.high)[table.claim == "memory"].all()


def record(folder: Path, model: str, effects: dict) -> None:
    """Write the files of a comparison as `compare` does, and beside them the times of steps."""
    (folder / model).mkdir()
    tables = dict(zip(("runs", "documents", "answers", "step_times"), planted(effects), strict=True))
    tables["comparison"] = pd.DataFrame({"strategy": list(effects), "note": "#1 of two"})
    for name, table in tables.items():
        comment = f"# - model: {model}\n# - command: python -m tlkit compare\n# - date: 2026-11-22\n"
        (folder / model / f"{name}.csv").write_text(comment + table.to_csv(index=False), encoding="utf-8")


def test_a_recorded_comparison_is_read_as_it_was_written(tmp_path):
    record(tmp_path, "small", EFFECTS)
    record(tmp_path, "large", {**EFFECTS, "lora": (-0.6, -0.1, 80.0, 700.0)})
    found = recorded_comparison("small", folder=tmp_path)
    pd.testing.assert_frame_equal(found.documents, planted(EFFECTS)[1])
    assert found.provenance == ("model: small", "command: python -m tlkit compare", "date: 2026-11-22")
    assert found.table.note.tolist() == 3 * ["#1 of two"]
    table = recorded_carry_over("small", "large", tmp_path)
    expected = carry_over(
        {name: measure_claims(*planted(effects)) for name, effects in (("small", EFFECTS), ("large", EFFECTS))}
    )
    assert list(table.columns) == list(expected.columns) and "time" in set(table.claim)
    assert table.set_index(["claim", "strategy"]).verdict["forgetting", "lora"] == "opposite"
    with pytest.raises(ValueError, match="'other': expected one of large, small"):
        recorded_carry_over("small", "other", tmp_path)


def test_a_comparison_of_another_task_lies_below_its_model_with_what_was_written(tmp_path):
    record(tmp_path, "small", EFFECTS)
    record(tmp_path / "small", "answer", {**EFFECTS, "lora": (-0.6, -0.1, 80.0, 700.0)})
    written = pd.DataFrame({"strategy": ["full", "full"], "answer": ["None", '# a\nb, "c"'], "stopped": [True, False]})
    (tmp_path / "small" / "answer" / "written.csv").write_text("# - model: small\n" + written.to_csv(index=False))
    found = recorded_comparison("small", task="answer", folder=tmp_path)
    pd.testing.assert_frame_equal(found.written, written)
    plain = recorded_comparison("small", folder=tmp_path)
    assert plain.written.empty and not plain.runs.equals(found.runs)
    with pytest.raises(ValueError, match="strategies='classic' and task='classify' is recorded for 'small'"):
        recorded_comparison("small", task="classify", folder=tmp_path)


def test_a_machine_that_slows_down_moves_no_ratio():
    """The planted turns last one, two and three times as long; each strategy's share of full stays what it is."""
    runs, documents, answers, times = planted(EFFECTS)
    slower = times.assign(seconds=times.seconds * (1 + 9 * times.turn))
    one, other = (
        figure(measure_claims(runs, documents, answers, seconds), "time", "lora") for seconds in (times, slower)
    )
    assert one.value == pytest.approx(other.value, rel=1e-9) and one.high < 0


@pytest.mark.parametrize("model", ["tiny", "smollm2-135m-instruct"])
def test_recorded_steps_are_of_the_recorded_strategies_and_took_turns(model):
    times = pd.read_csv(RECORDED / model / STEP_TIMES, comment="#")
    runs = recorded_comparison(model).runs
    strategies = set(runs.strategy) - {ZERO_SHOT, CONTROL}
    assert set(times.strategy) == strategies and (times.seconds > 0).all()
    assert times.groupby("turn").strategy.agg(set).map(strategies.__eq__).all() and times.turn.nunique() >= 10


def test_what_is_said_of_another_diet_is_what_was_measured():
    measured = pd.read_csv(RECORDED / "tiny-wider" / "pretraining.csv").pivot(
        index="text", columns="model", values="bits_per_byte"
    )
    page = (RECORDED.parent / "README.md").read_text(encoding="utf-8")
    assert len(measured) == 3
    for row in measured.itertuples(index=False):
        assert f"| {row[0]:.3f} | {row[1]:.3f} |" in page
    found = recorded_carry_over("tiny", "tiny-wider")
    assert {"gain", "behind full", "forgetting"} <= set(found.claim) and "time" not in set(found.claim)
