"""Whether the method of an experiment supports its decision.

The result is the reader's own and is not judged. Judged is how it was found: a control, one change, enough seeds,
differences in pairs, the validation split, and a decision that says no more than the runs do.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tlkit.classroom.exercises import Wrong
from tlkit.classroom.lab.experiments import (
    BETTER,
    SAME,
    UNKNOWN,
    WORSE,
    Experiment,
    Run,
    Setting,
    amount,
    as_code,
    signed,
    written,
)
from tlkit.evidence.statistics import CONFIDENCE

SAME_VALUE = 1e-3  # runs that are one and the same differ by less, whatever the machine
MOST_SEEDS = 30  # nobody is sent to run more


@dataclass(frozen=True)
class Difference:
    """The changed runs minus the control, in pairs.

    Args:
        pairs: the seeds that both have.
        mean: over the pairs.
        low: end of the interval; as `mean` where one pair is all there is to know.
        high: as `low`.
        level: of the interval, such as 0.95; less is left to chance where several settings were tried.
        each: the difference of each pair.
    """

    pairs: tuple[Setting, ...]
    mean: float
    low: float
    high: float
    level: float = CONFIDENCE
    each: tuple[float, ...] = field(default=(), repr=False)


def judge(experiment: Experiment, runs: Sequence[Run], decision: object, changed: dict[str, Setting]) -> str:
    """Judge whether the runs support a decision: their method, and not what came out.

    Args:
        experiment: what is to be found out.
        runs: all of the notebook, those that are struck out included.
        decision: one of the experiment's.
        changed: the setting that was changed, with its new value; empty where only one was tried.

    Returns:
        What the runs show, in words.

    Raises:
        Wrong: where the method does not support the decision; the message says why and what to run next.
    """
    claim = _claim(experiment, decision)
    counted = [run for run in runs if not run.struck]
    _refuse_other_splits(experiment, counted)
    settings = _changed_settings(experiment, counted, changed)
    ours = _at(counted, settings)
    setup = ours[-1].setup
    ours = [run for run in ours if run.setup == setup]
    control = _control(experiment, counted, setup)
    name = written(experiment, settings)
    for group in (ours, control):
        _refuse_contradictions(experiment, group)
    if diverged := [run for run in (*ours, *control) if _value(experiment, run) is None]:
        return _with_diverged(experiment, claim, ours, control, diverged, name)
    tried = _tried(experiment, counted, setup)
    level = 1 - (1 - CONFIDENCE) / max(1, tried)
    _refuse_too_few(experiment, ours, control, settings)
    found = difference(experiment, ours, control, level)
    _refuse_copies(experiment, ours, control, found, name)
    _refuse_claim(experiment, claim, found, name)
    return f"{_shown(experiment, found, name, tried)} {_counted_out(runs)}".strip()


def difference(experiment: Experiment, ours: Iterable[Run], control: Iterable[Run], level=CONFIDENCE) -> Difference:
    """Subtract the control from the changed runs, pair by pair, with a t-interval where there are two pairs or more.

    Args:
        experiment: whose metric is compared.
        ours: the changed runs, none of them diverged.
        control: the same of the control.
        level: of the interval.
    """
    one, other = ({run.pair: _value(experiment, run) for run in reversed([*group])} for group in (ours, control))
    pairs = tuple(pair for pair in reversed(one) if pair in other and None not in (one[pair], other[pair]))
    each = tuple(one[pair] - other[pair] for pair in pairs)
    mean = math.fsum(each) / len(each) if each else math.nan
    if experiment.seeds == 1 or not each:
        return Difference(pairs, mean, mean, mean, level, each)
    if len(each) == 1:
        return Difference(pairs, mean, -math.inf, math.inf, level, each)
    half = _half_width(each, level)
    return Difference(pairs, mean, mean - half, mean + half, level, each)


def _claim(experiment: Experiment, decision: object) -> str:
    listed = ", ".join(f"`{one!r}`" for one in experiment.decisions)
    if decision is None or decision is ...:
        raise Wrong(f"no decision yet. Log your runs, then decide on one of {listed}")
    found = [one for one in experiment.decisions if one.lower() == str(decision).strip().lower()]
    if not found:
        raise Wrong(f"{decision!r:.60} is none of the decisions: expected one of {listed}")
    return experiment.decisions[found[0]]


def _changed_settings(experiment: Experiment, runs: list[Run], changed: dict[str, Setting]) -> dict[str, Setting]:
    """The settings whose runs are compared with the control: one of them differs, and they were run."""
    control = experiment.control
    if unknown := [name for name in changed if name not in control]:
        raise Wrong(f"{unknown[0]!r} is no setting of this experiment: expected one of {', '.join(control)}")
    others = _distinct(run.settings for run in runs if run.settings != control)
    if not others:
        first = experiment.may_change[0]
        raise Wrong(
            "there is nothing to compare yet: your notebook has only runs of the control. Change one setting, such as "
            f"{first} (the control has {as_code({first: control[first]})}), and log its runs"
        )
    if not changed and len(others) > 1:
        listed = "; ".join(written(experiment, one) for one in others[:6])
        raise Wrong(f"which of your settings is it about? Name it in the decision: {listed}")
    asked = control | changed if changed else others[0]
    different = [name for name in asked if asked[name] != control[name]]
    if not different:
        raise Wrong(
            f"{as_code(changed)} is the control itself, so nothing was changed. Name the setting that you compare with "
            "it"
        )
    if len(different) == 1 and asked not in others:
        near = [one for one in others if changed.items() <= one.items()]
        if near:
            raise Wrong(_several_changed(experiment, near[0], different[0]))
        listed = "; ".join(written(experiment, one) for one in others[:6])
        raise Wrong(f"no run with {as_code(changed)} is in your notebook. It has runs with {listed}")
    if len(different) > 1:
        raise Wrong(_several_changed(experiment, asked, different[0]))
    if different[0] not in experiment.may_change:
        raise Wrong(
            f"{different[0]} has to stay at {control[different[0]]!r}: with another value the runs no longer have the "
            f"same data and budget, and the difference could come from that. Change one of "
            f"{', '.join(experiment.may_change)} instead"
        )
    return asked


def _several_changed(experiment: Experiment, settings: dict[str, Setting], first: str) -> str:
    different = {name: value for name, value in settings.items() if value != experiment.control[name]}
    alone = {first: different[first]}
    return (
        f"{len(different)} settings differ from the control at once: {as_code(different)}. Which of them made the "
        f"difference cannot be seen. Run {_call(experiment, alone)} with everything else as in the control"
    )


def _refuse_other_splits(experiment: Experiment, runs: list[Run]) -> None:
    if not experiment.split:
        return
    if test := [run for run in runs if run.split == "test"]:
        raise Wrong(
            f"run {_numbers(test)} was scored on the test split. Whoever chooses by it can no longer trust it: it "
            f"answers only once, at the end. Score the same on {experiment.split} and log that, strike the run out "
            f"(`notes.strike({test[0].number}, ...)`), and report that the test split was seen"
        )
    if other := [run for run in runs if run.split != experiment.split]:
        raise Wrong(
            f"run {_numbers(other)} was scored on {other[0].split!r}, and this experiment compares on "
            f"{experiment.split!r}: scores of different texts cannot be subtracted. Score it on {experiment.split}"
        )


def _control(experiment: Experiment, runs: list[Run], setup: str) -> list[Run]:
    found = _at(runs, experiment.control)
    same = [run for run in found if run.setup == setup]
    if not found:
        raise Wrong(
            "there is no control: without it nobody knows what the same training gives unchanged. Run "
            f"{_call(experiment, {}, range(experiment.seeds))}"
        )
    if not same:
        raise Wrong(
            f"your control was run with {found[-1].setup} and the others with {setup}, which is other data. Run the "
            f"control again: {_call(experiment, {}, range(experiment.seeds))}"
        )
    return same


def _refuse_contradictions(experiment: Experiment, runs: list[Run]) -> None:
    first: dict[Setting, Run] = {}
    for run in runs:
        before = first.setdefault(run.pair, run)
        one, other = _value(experiment, before), _value(experiment, run)
        if (one is None) != (other is None) or (one is not None and not math.isclose(one, other, rel_tol=SAME_VALUE)):
            raise Wrong(
                f"runs {before.number} and {run.number} have the same settings and {experiment.pair} but another "
                f"{experiment.metrics[0]}, so something differed that you did not log. Find out what, and strike the "
                f'wrong one out: `notes.strike({run.number}, "why")`'
            )


def _with_diverged(experiment, claim, ours, control, diverged, name) -> str:
    """A run that diverged is a result: it may speak against its setting, and it may not be left out."""
    metric = experiment.metrics[0]
    if any(run in control for run in diverged):
        raise Wrong(
            f"run {_numbers(diverged)} of the control has no finite {metric}: a control that diverged is no control"
        )
    if len({run.pair for run in ours}) < experiment.seeds:
        settings = {key: value for key, value in ours[0].settings.items() if value != experiment.control.get(key)}
        missing = _next_pairs(experiment, control, {run.pair for run in ours}, experiment.seeds)
        raise Wrong(f"one run that diverges may be an accident. Run {_call(experiment, settings, missing)} as well")
    if claim != WORSE:
        raise Wrong(
            f"with {name}, run {_numbers(diverged)} diverged. Leaving such runs out would be picking, so all that "
            "these runs can support is that this setting is worse"
        )
    return f"With {name}, run {_numbers(diverged)} diverged, and no run of the control did."


def _tried(experiment: Experiment, runs: list[Run], setup: str) -> int:
    """How many settings were run often enough to make a claim about: the more, the likelier one is good by luck."""
    groups = _distinct(run.settings for run in runs if run.settings != experiment.control and run.setup == setup)
    return sum(len({run.pair for run in _at(runs, one)}) >= max(2, experiment.seeds) for one in groups)


def _refuse_too_few(experiment: Experiment, ours: list[Run], control: list[Run], settings: dict) -> None:
    one, other = ({run.pair for run in group} for group in (ours, control))
    both = one & other
    if len(both) >= experiment.seeds:
        return
    pair, changed = experiment.pair, {k: v for k, v in settings.items() if v != experiment.control[k]}
    wanted = _next_pairs(experiment, (*control, *ours), both, experiment.seeds)
    calls = [
        _call(experiment, change, [value for value in wanted if value not in have])
        for change, have in ((changed, one), ({}, other))
        if any(value not in have for value in wanted)
    ]
    if both:
        has = f"only {pair} {_listed(sorted(both, key=str))} was run with both settings"
    else:
        has = f"no {pair} was run with both settings, so no difference can be taken in pairs"
    chance = "one run each" if experiment.seeds == 1 else f"{experiment.seeds} {pair}s"
    why = "" if experiment.seeds == 1 else f", because with fewer a lucky {pair} looks like an effect"
    raise Wrong(f"{has}. This claim takes at least {chance}{why}. Run {' and '.join(calls)}")


def _refuse_copies(experiment: Experiment, ours: list[Run], control: list[Run], found: Difference, name: str) -> None:
    """Runs that are equal to the last digit are one run, logged several times."""
    if experiment.seeds == 1:
        return
    for group, which in ((ours, name), (control, "the control")):
        values = {_value(experiment, run) for run in group}
        if len(values) == 1:
            raise Wrong(
                f"all {experiment.pair}s of {which} gave the same {experiment.metrics[0]} to the last digit, so the "
                f"{experiment.pair} did not reach the run. These are copies of one run and say nothing about chance. "
                f"Hand the {experiment.pair} on, and run them again"
            )
    if not any(found.each):
        raise Wrong(
            f"{name} gave the control's {experiment.metrics[0]} to the last digit with every {experiment.pair}. "
            "Most likely the setting did not reach the run: look where your function hands it on, and run it again"
        )


def _refuse_claim(experiment: Experiment, claim: str, found: Difference, name: str) -> None:
    sign = -1 if experiment.better == "lower" else 1
    low, high = sorted((sign * found.low, sign * found.high))  # of the gain: above zero is better
    small = bool(experiment.matters) and max(abs(low), abs(high)) <= experiment.matters
    holds = {BETTER: low > 0, WORSE: high < 0, UNKNOWN: low <= 0 <= high, SAME: False}
    if small:
        holds = {SAME: True}
    if holds.get(claim):
        return
    said, matters = _sentence(experiment, found, name), amount(experiment.matters)
    if small:
        raise Wrong(f"{said} All of that is within {matters} of the control, which is too small to matter")
    if claim == SAME and min(abs(low), abs(high)) > experiment.matters and low * high > 0:
        raise Wrong(f"{said} All of that is more than {matters} away from the control, so it matters")
    if claim == SAME:
        more = "" if experiment.seeds == 1 else " That no difference was found does not mean that there is none"
        raise Wrong(f"{said} The difference may be more than {matters}, which matters.{more}")
    if claim == UNKNOWN:
        raise Wrong(f"{said} That excludes zero, so your runs can tell. Decide on what they say")
    if holds[BETTER] or holds[WORSE]:
        raise Wrong(f"{said} Your decision says something else than these runs")
    raise Wrong(f"{said} That includes zero, so these runs do not support it. {_more(experiment, found, name)}")


def _more(experiment: Experiment, found: Difference, name: str) -> str:
    """How many seeds it would take if the difference stayed as it is, or that it is not worth it."""
    honest = "To decide that you cannot tell is right, too"
    if experiment.seeds == 1:
        return honest
    count = len(found.each)
    spread = math.sqrt(math.fsum((one - found.mean) ** 2 for one in found.each) / (count - 1))
    for wanted in range(count + 1, MOST_SEEDS + 1):
        if _quantile(found.level, wanted) * spread / math.sqrt(wanted) < abs(found.mean):
            return f"If the difference stays as it is, about {wanted} {experiment.pair}s would show it. {honest}"
    return f"More than {MOST_SEEDS} {experiment.pair}s would be needed to see so small a difference. {honest}"


def _shown(experiment: Experiment, found: Difference, name: str, tried: int) -> str:
    said = _sentence(experiment, found, name)
    if tried > 1 and experiment.seeds > 1:
        said += f" You tried {tried} settings, so the interval is wider than one of 95%."
    return f"{said} That supports your decision."


def _sentence(experiment: Experiment, found: Difference, name: str) -> str:
    metric = experiment.metrics[0]
    side = "lower" if found.mean < 0 else "higher"
    much = f"{amount(abs(found.mean))} {side} than" if found.mean else "the same as"
    if experiment.seeds == 1:
        return f"With {name}, {metric} is {much} in the control."
    interval = f"the {100 * found.level:.3g}% interval is {signed(found.low)} to {signed(found.high)}"
    return f"With {name}, {metric} is {much} in the control over {len(found.pairs)} {experiment.pair}s; {interval}."


def _counted_out(runs: Iterable[Run]) -> str:
    struck = [run for run in runs if run.struck]
    return f"Run {_numbers(struck)} is struck out, and the notebook says why." if struck else ""


def _at(runs: Iterable[Run], settings: dict[str, Setting]) -> list[Run]:
    return [run for run in runs if run.settings == settings]


def _value(experiment: Experiment, run: Run) -> float | None:
    return run.metrics.get(experiment.metrics[0])


def _distinct(settings: Iterable[dict[str, Setting]]) -> list[dict[str, Setting]]:
    found = []
    for one in settings:
        if one not in found:
            found.append(one)
    return found


def _next_pairs(experiment: Experiment, runs: Iterable[Run], have: set, count: int) -> list[Setting]:
    """The seeds that are still to run: those that one side has come first, then new ones."""
    known = [run.pair for run in runs if run.pair not in have]
    new = [number for number in range(count + len(known) + len(have)) if number not in have]
    return sorted([*dict.fromkeys([*known, *new])][: count - len(have)], key=str)


def _call(experiment: Experiment, changed: dict[str, Setting], pairs: Iterable[Setting] = ()) -> str:
    pairs = list(pairs)
    given = as_code(changed)
    if pairs and experiment.seeds > 1:
        given += f"{', ' if given else ''}{experiment.pair}={pairs if len(pairs) > 1 else pairs[0]!r}"
    return f"`notes.run(measure{', ' if given else ''}{given})`"


def _listed(values: Iterable[object]) -> str:
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last


def _numbers(runs: Iterable[Run]) -> str:
    return _listed([run.number for run in runs][:5])


def _half_width(values: tuple[float, ...], level: float) -> float:
    mean, count = math.fsum(values) / len(values), len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return _quantile(level, count) * spread / math.sqrt(count)


def _quantile(level: float, count: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1 + level) / 2))
