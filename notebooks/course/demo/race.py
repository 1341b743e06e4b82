"""Panel 3, two strategies against each other: both train live, step by step, on the same text and the same axes."""

import math
import threading
from collections.abc import Iterable, Iterator

import ipywidgets as ipw

from course.demo.chart import LETTERS, StageChart, axis, layout
from course.demo.panel import Tell, alert, button, choice, row, said
from course.runs import Run, axes_for, has_diverged
from tlkit.reports.palette import COLOURS, FAINT

EVERY = 2  # steps between two points
RATES = {"a tenth of it": 0.1, "recorded": 1, "3 x recorded": 3, "10 x recorded": 10}
EPOCHS = (1, 2, 4)
LANES = (COLOURS[0], COLOURS[1])


def race(runs: Iterable[Run], untouched: float, epochs: float = 1, **options) -> Iterator[list[Run]]:
    """Train several runs in turns, and yield all of them after each turn; a run that diverges takes no further part.

    Args:
        runs: that have not begun.
        untouched: validation loss before any training.
        epochs: how often the text is read.
        options: of `training_lab`.

    Yields:
        The runs; each turn adds a point to those that still train.

    Raises:
        ValueError: as `training_lab` does, before any work.
    """
    from course.panels import training_lab

    runs, options = list(runs), {"every": EVERY} | options
    labs = {place: training_lab(run.strategy, run.rate, epochs, **options) for place, run in enumerate(runs)}
    while labs:
        for place, lab in list(labs.items()):
            run, state = runs[place], next(lab, None)
            if state is None:
                del labs[place]
                continue
            step, loss = state.validation.iloc[-1]
            run.steps = state.total_steps
            run.points.append((int(step), float(loss)))
            if has_diverged(loss, untouched):
                run.diverged_at = int(step)
                del labs[place]
        yield runs


def outcome(runs: list[Run], stopped: bool = False) -> str:
    """One line on how a race ended.

    Args:
        runs: of the race.
        stopped: whether somebody ended it early.
    """
    fallen = [run for run in runs if run.diverged_at is not None]
    whole = [run for run in runs if run.diverged_at is None and run.points]
    told = [f"{run.name} diverged at step {run.diverged_at} (its rate is too high)" for run in fallen]
    if len(whole) == 2:
        better, other = sorted(whole, key=lambda run: run.points[-1][1])
        apart = other.points[-1][1] - better.points[-1][1]
        told.append(f"{better.name} is {apart:.2f} nats per token below {other.name}; one seed each")
    elif whole:
        run = whole[0]
        told.append(f"{run.name} is at {run.points[-1][1]:.2f} nats per token")
    last = max((run.points[-1][0] for run in runs if run.points), default=0)
    when = f"Stopped at step {last}" if stopped else f"After {last} steps"
    return f"{when}: {'; '.join(told)}." if told else "Stopped before the first step."


def race_figure(runs: list[Run], earlier: list[Run], untouched: float, steps: int) -> tuple[dict, str]:
    """Validation loss by step: this race in colour, those before it pale, and the untouched model as a line.

    Args:
        runs: of this race.
        earlier: of the races before it.
        untouched: validation loss before any training.
        steps: of the longest race, for the axis.
    """
    across, upwards = axes_for([*runs, *earlier], untouched, steps)
    data, notes = [], []
    for number, run in enumerate([*earlier, *runs]):
        lane = number - len(earlier)
        shade = FAINT if lane < 0 else LANES[lane % len(LANES)]
        shown = [(0, untouched), *((step, loss) for step, loss in run.points if math.isfinite(loss))]
        data.append(
            {
                "type": "scatter",
                "mode": "lines" if lane < 0 else "lines+markers",
                "name": run.name,
                "x": [step for step, _ in shown],
                "y": [loss for _, loss in shown],
                "opacity": 0.3 if lane < 0 else 1,
                "line": {"color": shade, "width": 3 if lane < 0 else 4, "dash": "solid" if lane < 1 else "dot"},
                "marker": {"size": 10, "symbol": "circle" if lane < 1 else "diamond"},
                "showlegend": lane >= 0,
                "hovertemplate": f"{run.name}<br>step %{{x}}: %{{y:.2f}}<extra></extra>",
            }
        )
        if run.diverged_at is not None and lane >= 0:
            notes.append(
                {"x": 0.98, "xref": "paper", "xanchor": "right", "y": 0.98 - 0.09 * lane, "yref": "paper"}
                | {"yanchor": "top", "showarrow": False, "bgcolor": "rgba(255,255,255,0.9)"}
                | {"text": f"<b>{run.name}: diverged at step {run.diverged_at}</b>", "font": {"color": shade}}
            )
    line = {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": untouched, "y1": untouched}
    notes.append(
        {"x": 1, "xref": "paper", "xanchor": "right", "y": untouched, "yanchor": "bottom", "showarrow": False}
        | {"text": f"untouched model: {untouched:.2f}", "font": {"size": LETTERS}}
    )
    drawn = layout(
        1210,
        436,
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
        margin={"l": 10, "r": 20, "t": 44, "b": 10},
        shapes=[line | {"line": {"color": "#222", "width": 2, "dash": "dash"}}],
        annotations=notes,
        xaxis=axis("optimizer step", range=across, automargin=True),
        yaxis=axis("validation loss (nats/token)", range=upwards, automargin=True, dtick=0.5, tickformat=".1f"),
    )
    return {"data": data, "layout": drawn}, outcome(runs)


def build(tell: Tell) -> ipw.Widget:
    """Make the panel.

    Args:
        tell: says what is being done.
    """
    tell("scoring the untouched model")
    from course.panels import lab_steps, untouched_loss
    from tlkit.evidence.learning_rates import default_rates
    from tlkit.names import CLASSIC

    untouched, rates = untouched_loss(), default_rates("tiny")
    able, steps = ([name for name in CLASSIC if name in rates], {number: lab_steps(number) for number in EPOCHS})
    lanes = [
        (choice(label, able, chosen, "440px"), choice("Rate", list(RATES), "recorded", "320px"))
        for label, chosen in (("Blue", "full"), ("Red", "lora"))
    ]
    epochs = choice("Epochs", list(EPOCHS), 2, "180px")
    start = button("Start", "Train both from the pretrained weights", space=True)
    stop = button("Stop", "End after the step that is being taken")
    clear = button("Clear", "Forget the races before")
    spoken, chart = (
        ipw.HTML(said("Both start from the same weights and read the same text in the same order.")),
        StageChart(),
    )
    stopping, earlier, now = threading.Event(), [], []

    def draw() -> None:
        chart.show(*race_figure(now, earlier, untouched, steps[epochs.value]))

    def running(on: bool) -> None:
        start.disabled, stop.disabled, clear.disabled = on, not on, on
        for strategy, rate in lanes:
            strategy.disabled = rate.disabled = on
        epochs.disabled = on

    def train() -> None:
        try:
            spoken.value = said("Training both in turns …")
            for _ in race(now, untouched, epochs.value):
                draw()
                if stopping.is_set():
                    break
            spoken.value = said(outcome(now, stopping.is_set()))
            draw()
        except Exception as error:  # in a thread, nobody would read it
            spoken.value = alert(error)
        finally:
            running(False)

    def begin(clicked: object) -> None:
        earlier.extend(run for run in now if run.points)
        now[:] = [Run(strategy.value, rates[strategy.value] * RATES[rate.value]) for strategy, rate in lanes]
        stopping.clear()
        running(True)
        threading.Thread(target=train, daemon=True).start()

    def forget(clicked: object) -> None:
        earlier.clear()
        now.clear()
        draw()

    start.on_click(begin)
    stop.on_click(lambda clicked: stopping.set())
    clear.on_click(forget)
    epochs.observe(lambda change: None if now else draw(), "value")
    running(False)
    draw()
    (first, first_rate), (second, second_rate) = lanes
    return ipw.VBox([row(first, first_rate, epochs), row(second, second_rate, start, stop, clear), spoken, chart])
