"""The models and strategies whose steps are timed, the same in every process."""

REAL = "smollm2-135m-instruct"
STRATEGIES = {
    "full": ("full", {}),
    "last_layers": ("last_layers", {"train_norms": False}),
    "freeze_lower, embeddings frozen": ("freeze_lower", {"freeze_embeddings": True}),
    "lora": ("lora", {}),
    "lora in bf16": ("lora", {}),
    "full in bf16": ("full", {}),
    "lora, two micro-batches": ("lora", {}),
    "lora, two micro-batches, memory given back": ("lora", {}),
}


def ready(name: str, folder: str | None, strategy: str, count: int, tokens: int):
    """A model with its strategy applied, and so many random blocks."""
    import torch
    from transformers import AutoModelForCausalLM

    from tlkit.models import architecture, load_model
    from tlkit.strategies import apply_strategy, dtype_of_weights

    torch.manual_seed(0)
    if name in ("tiny", REAL):
        dtype = dtype_of_weights(STRATEGIES[strategy][0], precision_of(strategy))
        fresh = load_model(where(name, folder), dtype=dtype).model
    else:
        fresh = AutoModelForCausalLM.from_config(architecture(name))
    kind, options = STRATEGIES[strategy]
    torch.manual_seed(0)
    model = apply_strategy(fresh, kind, **options).model
    return model, torch.randint(fresh.config.vocab_size, (count, tokens), generator=torch.Generator().manual_seed(1))


def precision_of(strategy: str) -> str:
    """Of the arithmetic."""
    return "bf16" if "bf16" in strategy else "fp32"


def plan_for(model, rows: int, strategy: str = ""):
    """Where the vocabulary is large the logits are the largest tensor of all: tlkit never has them whole."""
    from tlkit.steps import Plan

    return Plan(
        micro_batch_size=rows // 2 if "micro" in strategy else rows,
        precision=precision_of(strategy),
        chunked_loss=model.config.vocab_size > 32_000,
    )


def where(name: str, folder: str | None) -> str:
    """What `load_model` is given for a model of that name."""
    return folder if name == REAL and folder else name


def is_here(folder: str | None) -> bool:
    """Whether the real model can be loaded; where it cannot, a line says so."""
    from tlkit.models import load_model

    try:
        load_model(where(REAL, folder))
    except (OSError, ValueError, RuntimeError) as error:
        print(f"{REAL} is not here, its cases are left out ({str(error).splitlines()[0]}); --model names its folder")
        return False
    return True
