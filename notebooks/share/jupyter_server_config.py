"""For the server of `python -m course lab`: beside its outputs, a saved lesson holds nothing of this machine.

JupyterLab would write the version of Python into each notebook that it opens, the times of runs and the state of widgets.
A panel without its state is an error where the notebook is opened again, so its picture stays and its controls do not.
"""

WIDGET = "application/vnd.jupyter.widget-view+json"


def without_noise(model: dict, **_: object) -> None:
    """Before a notebook is saved, take out what changes with the machine; `model` is changed in place."""
    if model["type"] != "notebook":
        return
    metadata, cells = model["content"]["metadata"], model["content"]["cells"]
    metadata.pop("widgets", None)
    metadata.get("language_info", {}).pop("version", None)
    for cell in cells:
        cell["metadata"].pop("execution", None)
        for output in list(cell.get("outputs", ())):
            if output.get("data", {}).pop(WIDGET, None) and not set(output["data"]) - {
                "text/plain"
            }:
                cell["outputs"].remove(output)


c.ContentsManager.pre_save_hook = without_noise  # noqa: F821
