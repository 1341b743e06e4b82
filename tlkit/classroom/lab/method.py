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

Means = dict[str, tuple[float, float] | None]  # of each further metric: of the changed runs and of the control
SAME_VALUE = 1e-3  # runs that are one and the same differ by less, whatever the machine
MOST_NAMED = 5  # runs in one sentence


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
    _refuse_dropped(experiment, runs, settings, setup)
    ours = [run for run in ours if run.setup == setup]
    control = _control(experiment, counted, setup)
    name = written(experiment, settings)
    for group in (ours, control):
        _refuse_contradictions(experiment, group)
    if diverged := [run for run in (*ours, *control) if _value(experiment, run) is None]:
        return _with_diverged(experiment, claim, ours, control, diverged, name)
    tried = _tried(experiment, runs, setup)
    level = 1 - (1 - CONFIDENCE) / max(1, tried)
    _refuse_too_few(experiment, ours, control, settings)
    found = difference(experiment, ours, control, level)
    _refuse_copies(experiment, ours, control, found, name)
    _refuse_claim(experiment, claim, found, name)
    beside = {metric: _means(metric, (ours, control), found.pairs) for metric in experiment.metrics[1:]}
    if claim == BETTER:
        _refuse_nothing_learned(experiment, decision, found, name, beside)
    return f"{_shown(experiment, found, name, tried, beside)} {_struck_out(runs)}".strip()


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
    others = [one for one in others if _may_change(experiment, one)] or others  # not those of another control
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
    different = _changes(experiment, settings)
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
            f"{_named(test, 'was', 'were')} scored on the test split. Whoever chooses by it can no longer trust it: it "
            f"answers only once, at the end. Score the same on {experiment.split} and log that, strike out what was "
            f"scored on the test split (`notes.strike({test[0].number}, ...)`), and report that you have seen it"
        )
    if other := [run for run in runs if run.split != experiment.split]:
        raise Wrong(
            f"{_named(other, 'was', 'were')} scored on {other[0].split!r}, and this experiment compares on "
            f"{experiment.split!r}: scores of different texts cannot be subtracted. Score on {experiment.split} instead"
        )


def _refuse_dropped(experiment: Experiment, runs: Sequence[Run], settings: dict[str, Setting], setup: str) -> None:
    """A run may be struck out as a mistake, but then it is made again: else anyone could drop what they dislike."""
    calls, all_dropped = [], []
    for group in (settings, experiment.control):
        here = [run for run in _at(runs, group) if (run.split, run.setup) == (experiment.split, setup)]
        kept = {run.pair for run in here if not run.struck}
        if dropped := [run for run in here if run.struck and run.pair not in kept]:
            changed = {} if group == experiment.control else _changes(experiment, group)
            calls.append(_call(experiment, changed, dict.fromkeys(run.pair for run in dropped)))
            all_dropped += dropped
    if all_dropped:
        raise Wrong(
            f"{_named(all_dropped, 'was', 'were')} struck out and never repeated. A {experiment.pair} that is dropped "
            f"for its result is cherry-picking. Run {' and '.join(calls)} again"
        )


def _control(experiment: Experiment, runs: list[Run], setup: str) -> list[Run]:
    found = _at(runs, experiment.control)
    same = [run for run in found if run.setup == setup]
    if not found:
        raise Wrong(
            "there is no control: without it you cannot know what comes out when nothing is changed. Run "
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
    if lost := [run for run in diverged if run in control]:
        raise Wrong(f"{_named(lost)} of the control diverged, and a control that diverged is no control")
    if len({run.pair for run in ours}) < experiment.seeds:
        missing = _next_pairs(experiment, control, {run.pair for run in ours}, experiment.seeds)
        call = _call(experiment, _changes(experiment, ours[0].settings), missing)
        raise Wrong(f"one run that diverges may be an accident. Run {call} as well")
    if claim != WORSE:
        raise Wrong(
            f"with {name}, {_named(diverged)} diverged. Leaving such runs out would be cherry-picking, so all that "
            "these runs can support is that this setting is worse"
        )
    return f"With {name}, {_named(diverged)} diverged, and no run of the control did."


def _tried(experiment: Experiment, runs: Sequence[Run], setup: str) -> int:
    """How many settings were run often enough to make a claim about: the more, the likelier one is good by luck.

    Settings whose runs are all struck out were tried, too. Runs that belong to another control were not.
    """
    here = [run for run in runs if (run.split, run.setup) == (experiment.split, setup)]
    groups = [one for one in _distinct(run.settings for run in here) if _may_change(experiment, one)]
    return sum(len({run.pair for run in _at(here, one)}) >= max(2, experiment.seeds) for one in groups)


def _refuse_too_few(experiment: Experiment, ours: list[Run], control: list[Run], settings: dict) -> None:
    one, other = ({run.pair for run in group} for group in (ours, control))
    both = one & other
    if len(both) >= experiment.seeds:
        return
    pair, changed = experiment.pair, _changes(experiment, settings)
    wanted = _next_pairs(experiment, (*control, *ours), both, experiment.seeds)
    calls = [
        _call(experiment, change, [value for value in wanted if value not in have])
        for change, have in ((changed, one), ({}, other))
        if any(value not in have for value in wanted)
    ]
    if both:
        named = f"{pair} {_listed(both)} was" if len(both) == 1 else f"{pair}s {_listed(sorted(both, key=str))} were"
        has = f"only {named} run with both settings"
    else:
        has = f"no {pair} was run with both settings, so no difference can be taken in pairs"
    chance = "one run each" if experiment.seeds == 1 else f"{experiment.seeds} {pair}s"
    why = "" if experiment.seeds == 1 else f", because with fewer a lucky {pair} looks like an effect"
    raise Wrong(f"{has}. A decision takes at least {chance}{why}. Run {' and '.join(calls)}")


def _refuse_copies(experiment: Experiment, ours: list[Run], control: list[Run], found: Difference, name: str) -> None:
    """Runs that are equal to the last digit are one run, logged several times, unless they are at a limit."""
    if experiment.seeds == 1:
        return
    for group, which in ((ours, name), (control, "the control")):
        values = {_value(experiment, run) for run in group}
        if len(values) == 1 and not values <= set(experiment.limits):
            raise Wrong(
                f"all {experiment.pair}s of {which} gave the same {experiment.metrics[0]} to the last digit, so the "
                f"{experiment.pair} did not reach the run. These are copies of one run and say nothing about chance. "
                f"Pass the {experiment.pair} on, and run them again"
            )
    at_limits = {_value(experiment, run) for run in (*ours, *control)} <= set(experiment.limits)
    if not any(found.each) and not at_limits:
        raise Wrong(
            f"{name} gave the control's {experiment.metrics[0]} to the last digit with every {experiment.pair}. "
            "Most likely the setting did not reach the run: look where your function passes it on, and run it again"
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
    whole = "The whole interval" if experiment.seeds > 1 else "That"
    if small:
        raise Wrong(f"{said} {whole} is within {matters} of the control, too little to matter")
    if claim == SAME and min(abs(low), abs(high)) > experiment.matters and low * high > 0:
        raise Wrong(f"{said} {whole} is more than {matters} away from the control, so it matters")
    if claim == SAME:
        unseen = experiment.seeds > 1 and low <= 0 <= high
        more = " That no difference was found does not mean that there is none" if unseen else ""
        raise Wrong(f"{said} The difference may be more than {matters}, which matters.{more}")
    if claim == UNKNOWN:
        raise Wrong(f"{said} That excludes zero, so your runs can tell. Choose the decision that they support")
    if holds[BETTER] or holds[WORSE]:
        raise Wrong(f"{said} Your decision contradicts these runs")
    raise Wrong(f"{said} That includes zero, so these runs do not support it. {_more(experiment, found)}")


def _more(experiment: Experiment, found: Difference) -> str:
    """How many seeds such a difference would take, to be planned and not tried out; or that it is not worth it."""
    honest = "Deciding that you cannot tell is also right"
    if experiment.seeds == 1:
        return honest
    count, pairs = len(found.each), f"{experiment.pair}s"
    spread = math.sqrt(math.fsum((one - found.mean) ** 2 for one in found.each) / (count - 1))
    for wanted in range(count + 1, experiment.most + 1):
        if _quantile(found.level, wanted) * spread / math.sqrt(wanted) < abs(found.mean):
            return (
                f"A difference of this size would take about {wanted} {pairs}. If you want to know, decide on that "
                f"number now, run them all, and decide once. Adding {pairs} until the interval excludes zero finds "
                f"differences that are not there. {honest}"
            )
    return f"A difference of this size would take more than {experiment.most} {pairs}. {honest}"


def _refuse_nothing_learned(
    experiment: Experiment, decision: object, found: Difference, name: str, beside: Means
) -> None:
    """Who changes nothing also harms nothing, so a decision for the change takes what was to be kept."""
    for metric, limit in experiment.keep.items():
        if beside[metric] is None:
            raise Wrong(
                f"{metric} is not in all of these runs, as a finite number. Without it nobody can see whether the "
                f"model learned anything with {name}. Log it with each run"
            )
        if (mean := beside[metric][0]) > limit:
            raise Wrong(
                f"{_sentence(experiment, found, name)} {_capital(str(decision).strip())}, but {metric} is "
                f"{amount(mean)}: it has hardly learned anything, because that takes {amount(limit)} or less. Choose "
                "a setting that learns something, too"
            )


def _means(metric: str, groups: Iterable[list[Run]], pairs: Iterable[Setting]) -> tuple[float, float] | None:
    """The mean of a further metric in each group over the pairs; None where a run lacks it or has diverged in it."""
    found = []
    for group in groups:
        values = {run.pair: run.metrics[metric] for run in reversed(group) if run.metrics.get(metric) is not None}
        if not all(pair in values for pair in pairs):
            return None
        found.append(math.fsum(values[pair] for pair in pairs) / len(pairs))
    return tuple(found)


def _shown(experiment: Experiment, found: Difference, name: str, tried: int, beside: Means) -> str:
    said = _sentence(experiment, found, name)
    if tried > 1 and experiment.seeds > 1:
        said += f" You tried {tried} settings, so the interval is wider than a 95% interval."
    known = {metric: means for metric, means in beside.items() if means is not None}
    changes = [f"{metric} {_changed_by(*means)}" for metric, means in known.items()]
    if changes:
        said += f" At the same time, {_listed(changes)}."
    return f"{said} That supports your decision."


def _sentence(experiment: Experiment, found: Difference, name: str) -> str:
    metric = experiment.metrics[0]
    side = "lower" if found.mean < 0 else "higher"
    much = f"{amount(abs(found.mean))} {side} than" if found.mean else "the same as"
    if experiment.seeds == 1:
        return f"With {name}, {metric} is {much} in the control."
    interval = f"the {100 * found.level:.3g}% interval is {signed(found.low)} to {signed(found.high)}"
    return f"With {name}, {metric} is {much} in the control over {len(found.pairs)} {experiment.pair}s; {interval}."


def _struck_out(runs: Iterable[Run]) -> str:
    struck = [run for run in runs if run.struck]
    return f"{_capital(_named(struck, 'was', 'were'))} struck out, and the notebook says why." if struck else ""


def _changed_by(mean: float, control: float) -> str:
    if mean == control:
        return "stayed the same"
    near = math.isclose(mean, control, rel_tol=SAME_VALUE)
    return "hardly changed" if near else f"changed by {signed(mean - control)}"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _changes(experiment: Experiment, settings: dict[str, Setting]) -> dict[str, Setting]:
    """What differs from the control."""
    return {name: value for name, value in settings.items() if value != experiment.control.get(name)}


def _may_change(experiment: Experiment, settings: dict[str, Setting]) -> bool:
    """Whether something differs from the control, and nothing that has to stay."""
    changed = _changes(experiment, settings)
    return bool(changed) and set(changed) <= set(experiment.may_change)


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


def _named(runs: Sequence[Run], singular: str = "", plural: str = "") -> str:
    """Name runs by their numbers, with a verb: "run 4 was", "runs 4, 5 and 6 were"."""
    numbers = [run.number for run in runs]
    if len(numbers) > MOST_NAMED + 1:
        numbers = [*numbers[:MOST_NAMED], f"{len(numbers) - MOST_NAMED} more"]
    return f"run{'s' if len(runs) > 1 else ''} {_listed(numbers)} {plural if len(runs) > 1 else singular}".strip()


def _half_width(values: tuple[float, ...], level: float) -> float:
    mean, count = math.fsum(values) / len(values), len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return _quantile(level, count) * spread / math.sqrt(count)


def _quantile(level: float, count: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1 + level) / 2))
