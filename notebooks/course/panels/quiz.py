"""A quiz, with a button for each choice."""

import ipywidgets as ipw

from course.exercises import Quiz, check, find
from course.panels.views import Panel, on_change


def quiz(name: str) -> Panel:
    """Show the choices of a quiz; without widgets, `check(name, "b")` does the same.

    Args:
        name: of a quiz, such as "quiz04".

    Raises:
        ValueError: for an unknown name, and for an exercise.
    """
    task = find(name)
    if not isinstance(task, Quiz):
        raise ValueError(f"{name} is an exercise, not a quiz: give your answer to check({name!r}, answer)")
    # What they say stands above, in the lesson's text.
    letters = ipw.ToggleButtons(options=list(task.choices), value=None, description="Your choice")
    panel = Panel(letters)

    def judge() -> None:
        panel.said.value = check(name, letters.value)._repr_html_()

    on_change(judge, letters)
    return panel
