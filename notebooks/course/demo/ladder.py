"""Panel 5, out of memory and on: a training that fails on a small card, and each way it tries until one holds."""

import ipywidgets as ipw
import pandas as pd

from course.demo.chart import LETTERS, LIMIT, StageChart, axis, layout
from course.demo.panel import Tell, alert, button, row, said
from tlkit.reports.palette import COLOURS, KINDS

MEMORY = "48MB"
MOMENTS = 240  # of a step that are drawn; a step of many micro-batches has ten thousand


def thinned(timeline: pd.DataFrame, moments: int = MOMENTS) -> pd.DataFrame:
    """Keep of each stretch of a timeline its highest moment, so that no peak is lost.

    Args:
        timeline: what `step_timeline` returned.
        moments: that are kept at most.
    """
    total = timeline[list(KINDS)].sum(axis=1)
    stretch = pd.Series(range(len(timeline))) * moments // max(len(timeline), moments)
    return timeline.loc[total.groupby(stretch.to_numpy()).idxmax()].reset_index(drop=True)


def ladder_figure(timeline: pd.DataFrame, limit: int, top: float, label: str) -> tuple[dict, str]:
    """A step's bytes by kind as areas over time, with the card's limit; the same axes for every attempt.

    Args:
        timeline: what `step_timeline` returned, thinned or whole; empty for the card before the first attempt.
        limit: bytes of the card.
        top: of the axis, in MiB.
        label: of the attempt.
    """
    size = limit / 2**20
    moments = [100 * place / max(len(timeline) - 1, 1) for place in range(len(timeline))]
    areas = [
        {
            "type": "scatter",
            "mode": "lines",
            "stackgroup": "bytes",
            "name": kind,
            "x": moments or [0, 100],
            "y": (timeline[kind] / 2**20).round(3).tolist() if len(timeline) else [0, 0],
            "line": {"width": 0.5, "color": COLOURS[place]},
            "fillcolor": COLOURS[place],
            "hovertemplate": f"{kind}: %{{y:.1f}} MiB<extra></extra>",
        }
        for kind, place in KINDS.items()
    ]
    line = {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": size, "y1": size, "layer": "above"}
    notes = [
        {"x": 0.005, "xref": "paper", "xanchor": "left", "y": size, "yanchor": "bottom", "showarrow": False}
        | {"text": f"<b>limit of the card: {size:.0f} MiB</b>", "font": {"color": LIMIT, "size": LETTERS}}
        | {"bgcolor": "rgba(255,255,255,0.85)"}
    ]
    total = timeline[list(KINDS)].sum(axis=1) / 2**20 if len(timeline) else pd.Series([0.0])
    if len(timeline):
        notes.append(
            {"x": moments[int(total.idxmax())], "y": float(total.max()), "text": f"<b>{total.max():.0f} MiB</b>"}
            | {
                "showarrow": True,
                "ax": 0,
                "ay": -30,
                "arrowcolor": "#222",
                "font": {"size": LETTERS},
                "bgcolor": "rgba(255,255,255,0.85)",
            }
        )
    drawn = layout(
        1210,
        474,
        label,
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": -0.24, "yanchor": "top", "traceorder": "normal"},
        hovermode="x unified",
        shapes=[line | {"line": {"color": LIMIT, "width": 4, "dash": "dash"}}],
        annotations=notes,
        margin={"l": 10, "r": 20, "t": 38, "b": 90},
        xaxis=axis("a training step, from its first tensor to its last (%)", range=[0, 100], automargin=True),
        yaxis=axis("live tensors (MiB)", range=[0, top], automargin=True),
    )
    verdict = "above" if total.max() > size else "below"
    return {
        "data": areas,
        "layout": drawn,
    }, f"{label}. The highest moment has {total.max():.0f} MiB, {verdict} the limit."


def build(tell: Tell) -> ipw.Widget:
    """Make the panel.

    Args:
        tell: says what is being done.
    """
    from course.panels import fallback_run, ladder_steps
    from tlkit.memory import parse_size

    tell(f"training on a card of {MEMORY} until it holds")
    steps = ladder_steps(fallback_run(MEMORY))
    limit, timelines = parse_size(MEMORY), []
    for number, step in enumerate(steps, 1):
        tell(f"counting the bytes of attempt {number} of {len(steps)}")
        timelines.append(thinned(step.timeline()))
    top = 1.18 * max(float(line[list(KINDS)].sum(axis=1).max()) for line in timelines) / 2**20
    back = button("Back", "The attempt before")
    on = button("Next attempt", "What training tried next", space=True)
    spoken, chart, place = ipw.HTML(), StageChart(), -1

    def show(number: int) -> None:
        nonlocal place
        try:
            place = min(max(number, -1), len(steps) - 1)
            back.disabled, on.disabled = place < 0, place == len(steps) - 1
            if place < 0:
                label = "A card of 48 MiB, and nothing on it yet"
                text, kind = ("The model has 15.4 MiB of weights. Full fine-tuning begins with the next attempt.", "")
                timeline = timelines[0].iloc[:0]
            else:
                label = "Bytes on the card through one training step, other than the first"
                text, timeline = steps[place].text, timelines[place]
                kind = "bad" if steps[place].attempt.failed_in else "good"
            spoken.value = said(text, kind)
            chart.show(*ladder_figure(timeline, limit, top, label))
        except Exception as error:  # in a callback, nobody would read it
            spoken.value = alert(error)

    back.on_click(lambda clicked: show(place - 1))
    on.on_click(lambda clicked: show(place + 1))
    show(-1)
    return ipw.VBox([row(on, back), spoken, chart])
