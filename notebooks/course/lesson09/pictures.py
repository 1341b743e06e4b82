"""The memory of a training step as a picture in time: bytes by kind, stacked, with the parts of the step marked."""

import pandas as pd
from matplotlib.axes import Axes

from tlkit.memory import in_units
from tlkit.names import PHASES
from tlkit.reports.drawing import BEHIND, INK
from tlkit.reports.figure import COLOURS, HATCHES, Chart, described, headline, panels_beside
from tlkit.reports.palette import KINDS

NARROW = 0.06  # of the width: a phase that is narrower has its name in the words only


@described
def memory_timeline(timelines: pd.DataFrame | dict[str, pd.DataFrame], title: str = "") -> Chart:
    """Bytes of live tensors by kind through a training step: forward pass, backward pass, optimizer step.

    Args:
        timelines: what `step_timeline` returned; or several, by the name of each panel.
        title: the finding, above the picture.
    """
    panels = timelines if isinstance(timelines, dict) else {"": timelines}
    # A part of a timeline is drawn as well as the whole.
    panels = {name: timeline.reset_index(drop=True) for name, timeline in panels.items()}
    highest = max(_total(timeline).max() for timeline in panels.values())
    unit, divisor = ("GiB", 2**30) if highest >= 2**30 else ("MiB", 2**20)
    figure, places = panels_beside(len(panels))
    named: set[str] = set()
    for axes, (name, timeline) in zip(places, panels.items(), strict=True):
        axes.set_xlim(0, len(timeline) - 1)
        axes.set_ylim(0, 1.2 * highest / divisor)
        axes.set_xticks([])
        axes.set_xlabel("tensors made or freed, in order" if len(panels) < 3 else "moments, in order")
        axes.set_title(name, fontsize="medium", fontweight="bold", pad=30 if name else 6)
        _draw_kinds(axes, timeline, divisor)
        _draw_phases(axes, timeline, len(panels))
        _mark_peak(axes, timeline, divisor, len(panels))
        if len(panels) < 3:
            named |= _name_kinds(axes, timeline, divisor)
    places[0].set_ylabel(f"live tensors ({unit})")
    handles, labels = places[0].get_legend_handles_labels()
    there = {kind for timeline in panels.values() for kind in KINDS if timeline[kind].any()} - named
    left = [(handle, label) for handle, label in zip(handles, labels, strict=True) if label in there]
    if left:
        style = {"ncols": len(KINDS), "fontsize": "small", "frameon": False}
        figure.legend(*zip(*left, strict=True), loc="outside lower center", **style)
    figure.words = tuple(_in_words(name, timeline) for name, timeline in panels.items())
    if title:
        headline(figure, title)
    return figure


def phase_borders(timeline: pd.DataFrame) -> list[tuple[str, int, int]]:
    """Where the parts of a step begin and end.

    Args:
        timeline: what `step_timeline` returned.

    Returns:
        For each part its name and the numbers of its first moment and of the moment after its last one. With
        micro-batches, forward and backward pass come several times.
    """
    starts = [0, *(n for n in range(1, len(timeline)) if timeline.phase.iloc[n] != timeline.phase.iloc[n - 1])]
    return [
        (timeline.phase.iloc[start], start, end)
        for start, end in zip(starts, [*starts[1:], len(timeline)], strict=True)
    ]


def _total(timeline: pd.DataFrame) -> pd.Series:
    return timeline[list(KINDS)].sum(axis=1)


def _draw_kinds(axes: Axes, timeline: pd.DataFrame, divisor: int) -> None:
    """The kinds as layers on one another; those that are there at some moment have a label."""
    lower = timeline["weights"] * 0.0
    for kind, number in KINDS.items():
        upper = lower + timeline[kind] / divisor
        style = {"facecolor": COLOURS[number], "edgecolor": "white", "linewidth": 0, "hatch": HATCHES[number]}
        axes.fill_between(range(len(timeline)), lower, upper, label=kind, step="post", alpha=0.9, **style)
        lower = upper
    axes.grid(axis="x", visible=False)


def _draw_phases(axes: Axes, timeline: pd.DataFrame, panels: int) -> None:
    """A dashed line where a part of the step ends, and its name above the part where there is room."""
    for number, (name, start, end) in enumerate(phase_borders(timeline)):
        if number:
            axes.axvline(start, color=INK, linestyle="--", linewidth=1)
        if (end - start) / len(timeline) > NARROW * panels / 2:
            short = name.replace(" ", "\n")
            place = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "bottom"}
            size = "small" if panels < 3 else "x-small"
            axes.text((start + end) / 2, 1.01, short, color=INK, fontsize=size, linespacing=1, **place)


def _mark_peak(axes: Axes, timeline: pd.DataFrame, divisor: int, panels: int) -> None:
    """A dot at the highest moment, beside it the bytes and the share of logits and loss, which are there so shortly."""
    moment, total = _total(timeline).idxmax(), _total(timeline).max()
    told = f"peak: {_human(total)}"
    logits = timeline["logits and loss"][moment]
    if logits and panels < 3:
        told += f"\nof which logits and loss: {_human(logits)}"
    rightwards = moment < 0.55 * len(timeline)
    style = {"ha": "left" if rightwards else "right", "va": "bottom", "fontsize": "small", "fontweight": "bold"}
    style["bbox"] = BEHIND  # a dashed line may pass there
    # The tower below is often too narrow to see, so a thin line joins the dot to what is there for longer.
    foot = _total(timeline)[max(moment - len(timeline) // 25, 0)] / divisor
    axes.plot([moment, moment], [min(foot, total / divisor), total / divisor], color=INK, linewidth=0.8)
    axes.plot(moment, total / divisor, "o", color=INK, markersize=6)
    shift = (6 if rightwards else -6, 3)
    axes.annotate(told, (moment, total / divisor), shift, textcoords="offset points", **style).set_in_layout(False)


def _human(size: float) -> str:
    """Bytes with three digits: 213 MiB, 8.38 GiB."""
    unit, divisor = ("GiB", 2**30) if size >= 2**30 else ("MiB", 2**20)
    value = size / divisor
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _name_kinds(axes: Axes, timeline: pd.DataFrame, divisor: int) -> set[str]:
    """Write the names of thick layers into them, where they are thickest; returns the names."""
    lower, found = timeline["weights"] * 0.0, set()
    for kind in KINDS:
        size = timeline[kind] / divisor
        # The middle of the moments at which the layer is nearly as thick as it ever is.
        thick = size[size >= 0.85 * size.max()].index
        moment = thick[len(thick) // 2]
        if size[moment] > 0.06 * axes.get_ylim()[1] and len(thick) > 0.02 * len(timeline):
            behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
            place = min(max(moment, 0.12 * len(timeline)), 0.88 * len(timeline))
            middle = lower[moment] + size[moment] / 2
            axes.text(place, middle, kind, ha="center", va="center", fontsize="small", color=INK, bbox=behind)
            found.add(kind)
        lower = lower + size
    return found


def _in_words(name: str, timeline: pd.DataFrame) -> str:
    """What a panel says, for those who cannot see it."""
    moment = _total(timeline).idxmax()
    most = max(KINDS, key=lambda kind: timeline[kind][moment])
    ends = [f"{phase} ends with {in_units(_total(timeline)[end - 1])}" for phase, _, end in phase_borders(timeline)]
    peak = f"the peak, {in_units(_total(timeline)[moment])}, is in the {timeline.phase[moment]} and mostly {most}"
    return f"{name + ': ' if name else ''}{peak}; {', '.join(ends[: len(PHASES)])}"
