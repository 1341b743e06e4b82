"""What only the lessons need: exercises that are judged, and panels. It stands beside the lessons and is not installed.

A kernel that starts in `notebooks/` finds it, and so does `python -m course` there. A panel is imported when somebody
asks for it, with the libraries that it needs.
"""

from importlib import import_module

from course.claims import claim
from course.exercises import check, hint

_PANELS = {
    "TrainingLab": "training",
    "inside_the_model": "inside",
    "ladder_player": "ladder",
    "memory_explorer": "fitting",
    "quiz": "quiz",
    "strategy_map": "strategies",
    "three_ways": "tickets",
}
__all__ = ["check", "claim", "hint", *_PANELS]


def __getattr__(name: str) -> object:
    if name not in _PANELS:
        raise AttributeError(f"course has no {name!r}: expected one of {', '.join(__all__)}")
    return getattr(import_module(f"course.panels.{_PANELS[name]}"), name)
