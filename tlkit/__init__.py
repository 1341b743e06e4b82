"""tlkit: the small package behind the workbook; `import tlkit as tl` gives every name that a lesson uses.

A name is looked up where it is defined the first time it is asked for, so importing the package loads no library.
"""

import importlib

_WHERE = {
    "settings": ("setup",),
    "devices": ("probe",),
    "corpus": ("load_corpus", "pack"),
    "models": (
        "BUNDLED",
        "PRESETS",
        "architecture",
        "generate",
        "load_model",
        "longest_input",
        "meta_model",
        "save_model",
    ),
    "models.merging": ("merge_adapter",),
    "models.fetched": ("fetched", "fetched_folder"),
    "models.fetching": ("fetch",),
    "quantization": ("dequantized", "logical_size", "tensors_of"),
    "strategies": (
        "STRATEGIES",
        "ParameterGroup",
        "apply_strategy",
        "as_in_phase",
        "describe",
        "find_blocks",
        "is_tied",
        "set_groups",
        "strategies_named",
        "strategy",
    ),
    "evaluation": ("first_loss_warning", "perplexity", "score_table", "windows_at_once"),
    "memory": ("CARDS", "in_units", "track_memory", "virtual_device"),
    "steps": ("Plan", "mean_loss"),
    "prefix": ("cached_prefix", "frozen_blocks"),
    "jobs": ("Job",),
    "training": ("TrainingConfig", "new_state", "train", "training_steps"),
    "fitting.estimate": ("closed_form", "estimate_memory"),
    "fitting.fallback": ("train_with_fallback",),
    "fitting.ladder": ("FALLBACK_TIERS", "LADDER", "Rung"),
    "fitting.recommendation": ("fit_table", "recommend"),
    "fitting.trace": ("CannotEstimate",),
    "fitting.timeline": ("step_timeline",),
    "scaling.on_paper": ("memory_in_parts", "sent_per_step"),
    "scaling.rehearsal": ("rehearse",),
    "evidence.statistics": (
        "compare_pairs",
        "document_scores",
        "paired_differences",
        "rank_intervals",
        "seed_intervals",
    ),
    "evidence.gradient_flow": ("check_gradient_flow",),
    "evidence.flops": ("count_flops", "speedup_warning"),
    "evidence.forgetting": ("interpolate", "mix_in"),
    "evidence.learning_rates": ("CONTROL", "default_rates", "load_with_strategy"),
    "evidence.sweeps": ("recorded",),
    "evidence.low_rank": ("cut_to_rank", "decompose_change", "rank_table", "ranks_needed"),
    "evidence.questions": ("CHANCE", "Question", "answer_questions", "load_questions"),
    "evidence.answers": ("compare_answers",),
    "evidence.carry_over": ("recorded_carry_over", "recorded_comparison"),
    "evidence.comparison_settings": ("ComparisonSettings",),
    "evidence.comparison": ("ZERO_SHOT", "compare"),
    "evidence.audit": ("audit",),
    "evidence.planning": ("detectable_difference", "items_needed", "seeds_needed"),
    "evidence.fronts": ("front_shares", "on_front"),
    "evidence.leaderboards": ("leaderboard",),
    "reports.charts": ("accuracy_chart", "differences_chart", "pairs_chart", "pareto_of", "perplexity_chart"),
    "reports.cost_charts": ("cost_chart", "forgetting_chart", "parameters_chart"),
    "reports.training_charts": ("learning_curves", "overfitting_chart", "sweep_chart", "tradeoff_chart"),
    "reports.model_charts": ("components_chart", "flops_chart", "gradient_flow_chart"),
    "reports.diagrams": ("network_strip",),
    "reports.lessons.ladder": ("checkpointing_picture", "ladder_diagram", "micro_batch_picture"),
    "reports.lessons.intervals": ("bootstrap_chart", "pairing_chart"),
    "reports.lessons.inside": (
        "attention_chart",
        "layer_losses_chart",
        "lens_chart",
        "next_token_chart",
        "token_losses_chart",
        "token_strip",
        "transformer_block",
    ),
    "reports.lessons.steps": ("borders_chart", "moments_chart", "training_chart"),
    "reports.schemes": ("decision_tree", "step_flow"),
    "reports.memory_charts": ("attempts_chart", "fit_chart", "ladder_chart", "memory_chart"),
    "reports.lessons.autopsy": ("label_shift_scheme", "margins_chart", "published_chart", "speedup_chart"),
    "reports.lessons.scaling": ("ring_scheme", "same_curve_chart", "sharding_scheme"),
    "reports.two_models": ("carried_over", "carry_over_chart", "gained_and_forgotten"),
    "reports.lessons.adapters": (
        "adapter_gradients_chart",
        "grid_chart",
        "lora_picture",
        "rank_chart",
        "shares_chart",
    ),
    "reports.lessons.embeddings": (
        "trained_depth_chart",
        "prefix_picture",
        "row_gradients_chart",
        "table_share_chart",
        "table_uses",
    ),
    "reports.lessons.baseline": (
        "perplexity_ruler",
        "resampling_chart",
        "splits_chart",
        "small_tests_chart",
        "surprise_chart",
        "window_chart",
    ),
    "reports.lessons.memory_timeline": ("memory_timeline",),
    "reports.lessons.quantization": ("four_bit_layer", "levels_chart", "output_error_chart", "rounding_chart"),
    "reports.lessons.family": ("family_picture",),
    "reports.lessons.schedules": ("phase_cost_chart", "schedule_chart"),
    "reports.lessons.training": ("frozen_depth_chart", "products_chart", "run_chart"),
    "reports.fronts": ("front_chart",),
    "reports.lessons.leaderboard": ("apart_chart", "reruns_chart", "scores_chart", "standings_chart"),
    "reports.export": ("export", "readable"),
    "classroom.claims": ("claim",),
    "classroom.exercises": ("check", "hint", "progress"),
    "classroom.widgets": (
        "TrainingLab",
        "before_and_after",
        "ladder_player",
        "memory_explorer",
        "quiz",
        "strategy_map",
    ),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"tlkit has no {name!r}: expected one of {', '.join(__all__)}")
    globals()[name] = found = getattr(importlib.import_module(f"tlkit.{_MODULE_OF[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
