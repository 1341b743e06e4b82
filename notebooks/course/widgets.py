"""Panels to play with, in a notebook or on a page: each shows what a function of `panels` says, and decides nothing.

Every control has a label and works from the keyboard. What goes wrong is shown in the panel.
"""

import html
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ipywidgets as ipw

from course.exercises import Quiz, check, find
from course.runs import Run, has_diverged
from course.stills import LastingBox

WIDE = {"description_width": "9em"}
LAYOUT = {"width": "24em"}


def quiz(name: str) -> LastingBox:
    """Show a quiz with a button for each choice; without widgets, `check(name, "b")` does the same.

    Args:
        name: of a quiz, such as "quiz04".

    Raises:
        ValueError: for an unknown name, and for an exercise.
    """
    task = find(name)
    if not isinstance(task, Quiz):
        raise ValueError(f"{name} is an exercise, not a quiz: give your answer to check({name!r}, answer)")
    # What they say stands above, in the lesson's text.
    choice = ipw.ToggleButtons(options=list(task.choices), value=None, description="Your choice")
    said = _said()

    def judge(change) -> None:
        said.value = check(name, change["new"])._repr_html_()

    choice.observe(judge, "value")
    return LastingBox([choice, said])


def memory_explorer() -> LastingBox:
    """Compare what a training step needs with what a card has; from code: `panels.memory_view(...)`."""
    from course.panels import memory_view
    from tlkit.fitting.estimate import DTYPES
    from tlkit.memory import CARDS
    from tlkit.models import distinct_architectures
    from tlkit.names import CLASSIC

    controls = {
        "model": _choice("Model", distinct_architectures(), "qwen2-0.5b"),
        "strategy": _choice("Strategy", list(CLASSIC), "full"),
        "dtype": _choice("Precision", list(DTYPES), "fp32"),
        "batch_size": _choice("Batch size", [1, 2, 4, 8, 16, 32], 1),
        "sequence_length": _choice("Sequence length", [32, 64, 128, 256, 512, 1024, 2048], 512),
        "card": _choice("Card", list(CARDS), "RTX 4060 8GB"),
    }
    said, picture = _said(), ipw.HTML()

    def update(change=None) -> None:
        said.value = _paragraph("estimating, a few seconds for a large model …")
        with _shown(said):
            view = memory_view(**{name: control.value for name, control in controls.items()})
            picture.value, said.value = view.picture(), _paragraph(view.text)

    for control in controls.values():
        control.observe(update, "value")
    update()
    return LastingBox([_row(controls.values()), said, picture])


def strategy_map() -> LastingBox:
    """Show which parts of a model a strategy trains; from code: `panels.strategy_report(...)`."""
    from course.panels import strategy_boxes, strategy_report
    from tlkit.models import distinct_architectures
    from tlkit.names import CLASSIC

    model, strategy = (_choice("Model", distinct_architectures(), "tiny"), _choice("Strategy", list(CLASSIC), "full"))
    said, boxes = _said(), ipw.HTML()

    def update(change=None) -> None:
        said.value = _paragraph("counting …")
        with _shown(said):
            report = strategy_report(model.value, strategy.value)
            boxes.value, said.value = strategy_boxes(report), _paragraph(str(report))

    for control in (model, strategy):
        control.observe(update, "value")
    update()
    return LastingBox([_row([model, strategy]), said, boxes])


class TrainingLab:
    """Train the bundled model while you watch; `state` is what was reached. From code: `panels.training_lab(...)`."""

    def __init__(self) -> None:
        from tlkit.names import CLASSIC

        self.strategy = _choice("Strategy", list(CLASSIC), "full")
        self.learning_rate = _choice("Learning rate", [1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2], 1e-3)
        self.epochs = _choice("Epochs", [0.5, 1, 2, 4], 1)
        self.start_button = ipw.Button(description="Start", tooltip="Train from the pretrained weights")
        self.stop_button = ipw.Button(description="Stop", tooltip="Stop, and keep what was reached", disabled=True)
        self.bar = ipw.FloatProgress(min=0, max=1, description="Progress", style=WIDE)
        self.said, self.picture = _said(), ipw.HTML()
        self.state = None
        self.runs: list[Run] = []  # all of this panel, the last one last
        self._untouched: float | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.start_button.on_click(lambda button: self.start())
        self.stop_button.on_click(lambda button: self.stop())
        buttons = ipw.HBox([self.start_button, self.stop_button, self.bar])
        controls = _row([self.strategy, self.learning_rate, self.epochs])
        self.panel = LastingBox([controls, buttons, self.said, self.picture])

    def start(self) -> None:
        """Begin a run in the background, so that the Stop button works meanwhile."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._stop.clear()
        self._running(True)
        self.said.value = _paragraph("loading the model …")
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the run after the step that is being taken; its result is kept in `state`."""
        self._stop.set()

    def wait(self) -> None:
        """Wait until the run has ended."""
        if self._thread is not None:
            self._thread.join()

    def _train(self) -> None:
        from course.panels import lab_view, training_lab, untouched_loss

        with _shown(self.said):
            if self._untouched is None:
                self._untouched = untouched_loss()
            began = time.monotonic()
            run = Run(self.strategy.value, self.learning_rate.value)
            for state in training_lab(run.strategy, run.rate, self.epochs.value):
                self.state, run.steps = state, state.total_steps
                step, loss = state.validation.iloc[-1]
                run.points.append((int(step), float(loss)))
                if len(run.points) == 1:
                    self.runs.append(run)
                if has_diverged(loss, self._untouched):
                    run.diverged_at = int(step)
                view = lab_view(self.runs, self._untouched)
                self.bar.value = step / state.total_steps
                self.picture.value, self.said.value = (view.picture(), _paragraph(view.text))
                if run.diverged_at is not None or (self._stop.is_set() and not state.done):
                    break
            how = "" if state.done or run.diverged_at else "Stopped, and kept. "
            self.said.value = _paragraph(f"{how}{view.text} It took {time.monotonic() - began:.0f} s.")
        self._running(False)

    def _running(self, running: bool) -> None:
        self.start_button.disabled, self.stop_button.disabled = running, not running

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.panel)


def before_and_after(before: object, after: Callable[[], object], tokenizer: object) -> LastingBox:
    """Let two models continue a prompt side by side; from code: `panels.continuations(...)`.

    Args:
        before: the model before it was adapted.
        after: is asked for the adapted model each time, which may still be in training; returns None where there is
            none yet.
        tokenizer: of both.
    """
    from course.panels import PROMPT, continuations

    prompt = ipw.Textarea(value=PROMPT, description="Prompt", style=WIDE, layout={"width": "48em", "height": "4em"})
    temperature = _choice("Temperature", [0.0, 0.3, 0.7, 1.0, 1.5], 0.0)
    button = ipw.Button(description="Continue", tooltip="Let both models continue the prompt")
    said, texts = _said(), [ipw.HTML(layout={"width": "48%"}) for _ in range(2)]

    def update(clicked=None) -> None:
        said.value = _paragraph("writing …")
        adapted = after()
        models = {"before": before} if adapted is None else {"before": before, "after": adapted}
        with _shown(said):
            written = continuations(models, tokenizer, prompt.value, temperature=temperature.value)
            for place, name in zip(texts, ("before", "after"), strict=True):
                place.value = f"<h4>{name}</h4>" + _paragraph(written.get(name, "not adapted yet: train it first"))
            said.value = _paragraph("Greedy: the same each time." if temperature.value == 0 else "Drawn, with seed 0.")

    button.on_click(update)
    return LastingBox([prompt, ipw.HBox([temperature, button]), said, ipw.HBox(texts)])


def ladder_player(log: object = None) -> LastingBox:
    """Step through a fallback; from code: `panels.ladder_views(log)`.

    Args:
        log: what `train_with_fallback` returned (None: one is made on a card of 48 MB, which takes some seconds).
    """
    from course.panels import fallback_run, ladder_views

    back, on = (ipw.Button(description="Back", tooltip="The attempt before"), ipw.Button(description="Next attempt"))
    said, picture = _said(), ipw.HTML()
    views, place = [], -1

    def show(number: int) -> None:
        nonlocal views, place
        with _shown(said):
            if not views:
                said.value = _paragraph("training on a card of 48 MB, some seconds …")
                views = ladder_views(log or fallback_run())
            place = min(max(number, 0), len(views) - 1)
            back.disabled, on.disabled = place == 0, place == len(views) - 1
            picture.value, said.value = (views[place].picture(), _paragraph(views[place].text))

    back.disabled, said.value = True, _paragraph("Nothing tried yet.")
    back.on_click(lambda button: show(place - 1))
    on.on_click(lambda button: show(place + 1))
    return LastingBox([ipw.HBox([back, on]), said, picture])


def _choice(label: str, options: list, value) -> ipw.Dropdown:
    return ipw.Dropdown(options=options, value=value, description=label, style=WIDE, layout=LAYOUT)


def _row(controls) -> ipw.HBox:
    return ipw.HBox(list(controls), layout={"flex_flow": "row wrap"})


def _said() -> ipw.HTML:
    """Where a panel speaks; what changes there is read out."""
    return ipw.HTML()


def _paragraph(text: str) -> str:
    return f'<p role="status" style="line-height:1.4">{html.escape(text)}</p>'


@contextmanager
def _shown(said: ipw.HTML) -> Iterator[None]:
    """An error in a callback would end in a log that nobody reads: it is shown in the panel."""
    try:
        yield
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        said.value = f'<p role="alert" style="color:#a00000;line-height:1.4">{html.escape(words)}</p>'
