"""What only the lessons need: exercises that are judged, and panels. It stands beside the lessons and is not installed.

A kernel that starts in `notebooks/` finds it, and so does `python -m course` there.
"""

from course.claims import claim
from course.exercises import check, hint
from course.widgets import TrainingLab, before_and_after, ladder_player, memory_explorer, quiz, strategy_map

__all__ = [
    "TrainingLab",
    "before_and_after",
    "check",
    "claim",
    "hint",
    "ladder_player",
    "memory_explorer",
    "quiz",
    "strategy_map",
]
