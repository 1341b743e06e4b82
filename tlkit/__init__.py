"""The package behind the workbook. Its names are looked up when they are used, so importing it loads no library."""

import importlib

_WHERE = {
    "settings": ("DATA", "setup", "Plan", "TrainingConfig"),
    "names": ("CONTROL", "ZERO_SHOT"),
    "devices": ("probe",),
    "corpus": ("load_corpus", "pack"),
    "presets": ("BUNDLED", "fetched_folder"),
    "models": ("architecture", "load_model", "meta_model", "save_model"),
    "models.parts": ("ParameterGroup", "find_blocks"),
    "strategies": ("apply_strategy", "describe", "strategy"),
    "evaluation": ("perplexity",),
    "examples.conversations": ("load_conversations",),
    "examples.labelled": ("load_labelled",),
    "memory": ("track_memory", "virtual_device"),
    "training": ("train", "training_steps"),
    "fitting.estimate": ("estimate_memory",),
    "fitting.fallback": ("train_with_fallback",),
    "evidence.statistics": ("compare_pairs",),
    "evidence.comparison_settings": ("ComparisonSettings",),
    "evidence.comparison": ("compare",),
    "evidence.audit": ("audit",),
    "reports.export": ("export",),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"tlkit has no {name!r}: expected one of {', '.join(__all__)}")
    return getattr(importlib.import_module(f"tlkit.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
