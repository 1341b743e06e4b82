"""Models: where they are, how one is loaded, checked, adapted and saved."""

from tlkit.models.adapter_folders import check_save, save_model
from tlkit.models.checks import evaluation_mode, longest_input, mode
from tlkit.models.loading import LoadedModel, architecture, download_needed, load_model, meta_model
from tlkit.models.sources import BUNDLED, PRESETS, WAY_ON, Preset, chosen_model, distinct_architectures, download

__all__ = [
    "BUNDLED",
    "PRESETS",
    "WAY_ON",
    "LoadedModel",
    "Preset",
    "architecture",
    "check_save",
    "chosen_model",
    "distinct_architectures",
    "download",
    "download_needed",
    "evaluation_mode",
    "load_model",
    "longest_input",
    "meta_model",
    "mode",
    "save_model",
]
