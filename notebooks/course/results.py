"""The recorded result of the course, as README and the index page show it."""

from pathlib import Path

from course.lessons import FOLDER
from tlkit.checkpoints import write_atomically
from tlkit.evidence.carry_over import recorded_carry_over
from tlkit.reports.two_models import gained_and_forgotten

RECORDED_MODELS = ("tiny", "smollm2-135m-instruct")  # whose comparisons come with the workbook, the small one first


def draw_result(folder: Path = FOLDER) -> None:
    """Draw what strategies gain and forget, as recorded for two models, where README and the index show it."""
    (folder / "images").mkdir(exist_ok=True)
    chart = gained_and_forgotten(recorded_carry_over(*RECORDED_MODELS))
    write_atomically(folder / "images" / "forgetting.png", lambda path: chart.savefig(path, format="png", dpi=150))
