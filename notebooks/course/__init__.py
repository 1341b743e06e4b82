"""What only the lessons need: exercises that are judged, panels and pictures.

It stands beside the lessons and is not installed. A kernel that starts in `notebooks/` finds it, and so does
`python -m course` there. A panel or picture is imported when somebody asks for it, with the libraries that it needs.
"""

from importlib import import_module

from course.claims import claim
from course.exercises import check, hint

_WHERE = {
    "TrainingLab": "panels.training",
    "inside_the_model": "panels.inside",
    "ladder_player": "panels.ladder",
    "memory_explorer": "panels.fitting",
    "network_strip": "strip",
    "provenance": "results",
    "quiz": "panels.quiz",
    "recorded": "results",
    "strategy_map": "panels.strategies",
    "three_ways": "panels.tickets",
}
__all__ = ["check", "claim", "hint", *_WHERE]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"course has no {name!r}: expected one of {', '.join(__all__)}")
    return getattr(import_module(f"course.{_WHERE[name]}"), name)
