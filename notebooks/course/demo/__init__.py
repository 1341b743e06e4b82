"""The live demo, a panel on each screen: each function puts one on the page at once and has it built behind it."""

from importlib import import_module

from course.demo.panel import Panel, Tell


def inside_panel() -> Panel:
    """Show tokens, attention and the next token of the bundled model, for any text."""
    return _panel("Inside the model", "inside")


def strategies_panel() -> Panel:
    """Show which parts of a model a strategy trains, and what that adds to memory."""
    return _panel("What a strategy trains", "strategies")


def race_panel() -> Panel:
    """Train two strategies against each other, live."""
    return _panel("Two strategies against each other", "race")


def fitting_panel() -> Panel:
    """Show whether a training step fits a card, and what would make it fit."""
    return _panel("What would make it fit", "fitting")


def ladder_panel() -> Panel:
    """Run out of memory on purpose, and step through what training did about it."""
    return _panel("Out of memory, and on", "ladder")


def real_model_panel() -> Panel:
    """Show what training changed in a real model: its answers and its figures, as recorded, and live where it is."""
    return _panel("A real model, before and after", "real_model")


def _panel(name: str, module: str) -> Panel:
    def build(tell: Tell):
        return import_module(f"course.demo.{module}").build(tell)

    return Panel(name, build)
