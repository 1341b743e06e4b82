"""Guards that nbval does not give: pairs agree, every cell was executed, few cells escape comparison."""

from pathlib import Path

import jupytext
import nbformat
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
IGNORED = "nbval-ignore-output"
# Cells whose times, memory or raw losses differ between machines; raising a number needs a reason.
MOST_IGNORED = {
    "01_setup_and_devices": 2,
    "02_data_and_baseline": 4,
    "03_full_fine_tuning": 3,
    "04_freeze_lower_layers": 2,
    "05_freeze_embeddings": 1,
    "06_last_layers": 1,
    "07_lora_and_bitfit": 1,
    "11_comparison": 2,
}


def cells(notebook):
    return [(c.cell_type, c.source.strip(), sorted(c.metadata.get("tags", []))) for c in notebook.cells]


def test_every_notebook_has_its_source_and_every_source_its_notebook():
    assert SOURCES
    assert [s.stem for s in SOURCES] == sorted(n.stem for n in FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_pair_agrees(source):
    assert cells(jupytext.read(source)) == cells(nbformat.read(source.with_suffix(".ipynb"), 4))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_every_code_cell_was_executed_without_error_and_few_are_ignored(source):
    notebook = nbformat.read(source.with_suffix(".ipynb"), 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    ignored = [cell for cell in code if IGNORED in cell.metadata.get("tags", [])]
    assert len(ignored) <= MOST_IGNORED[source.stem]
    assert not any("assert" in cell.source for cell in ignored), "an assertion belongs in a compared cell"
    assert any("assert" in cell.source for cell in code)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_links_between_lessons_lead_somewhere(source):
    import re

    for target in re.findall(r"\]\((\w+\.ipynb)\)", source.read_text(encoding="utf-8")):
        assert (FOLDER / target).is_file(), target


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_outputs_carry_no_warnings_and_no_paths_of_one_machine(source):
    notebook = nbformat.read(source.with_suffix(".ipynb"), 4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert str(FOLDER.parent) not in source.with_suffix(".ipynb").read_text(encoding="utf-8")
