"""Strategies that leave the model's own weights as they are, and train few new ones beside them; all by peft."""

import warnings
from functools import partial

import torch
from torch import nn

from tlkit.models.parts import ParameterGroup, classifies, find_blocks, in_four_bits, is_norm
from tlkit.quantization import four_bit_config, quantize_linear_layers
from tlkit.strategies.registry import FAMILIES, STRATEGIES, strategy

Targets = str | list[str] | None  # names of layers; None: all linear ones but the head
ALL = "all-linear"
method = partial(strategy, family="peft")


@method("lora")
def lora(model: nn.Module, r: int = 8, alpha: int = 16, dropout: float = 0.0, targets: Targets = None, **more: object):
    """Beside each linear layer a product of two thin matrices, alpha / r times. Source: Hu et al. 2021, LoRA.

    Where peft passes layers over, as in mixtures of experts, the report's `doubts` say it.
    """
    settings = {"r": r, "lora_alpha": alpha, "lora_dropout": dropout, "target_modules": targets or ALL}
    return _by_peft(model, "LoraConfig", **settings, **more)


@method("qlora")
def qlora(model: nn.Module, method: str = "lora", **options: object):
    """The same, or another `method`, beside linear layers that are kept in 4 bits. Source: Dettmers et al. 2023."""
    if method == "qlora" or FAMILIES[method] != "peft":
        raise ValueError(f"method={method!r}: expected a method of peft, such as lora, dora or ia3")
    if method == "pissa":
        raise ValueError("method='pissa' begins with parts of the weights, which 4 bits do not hold")
    quantize_linear_layers(find_blocks(model), compute_dtype=model.dtype)
    model.is_loaded_in_4bit = True  # peft asks, and then makes the adapters that go with 4-bit layers
    return STRATEGIES[method](model, **options)


# LoRA turns the rows of a weight; how long each is becomes a weight of its own. Source: Liu et al. 2024, DoRA.
method("dora")(partial(lora, use_dora=True))
# LoRA counted alpha / sqrt(r) times, so that a high rank learns as fast. Source: Kalajdzievski 2023.
method("rslora")(partial(lora, use_rslora=True))


@method("pissa")
def pissa(model: nn.Module, r: int = 8, alpha: int = 8, dropout: float = 0.0, targets: Targets = None):
    """LoRA that starts as the weight's largest singular parts, taken out of it. Source: Meng et al. 2024, PiSSA."""
    # A model on paper has no singular values; shapes are all that anybody asks of it.
    on_paper = next(model.parameters()).is_meta
    adapted = lora(model, r, alpha, dropout, targets, init_lora_weights=on_paper or "pissa")
    if any(type(module).__name__ == "ParamWrapper" for module in adapted.modules()):
        raise ValueError("peft cannot adapt experts by this method: their weights are in no layers of their own")
    for module in adapted.modules() if on_paper else ():
        if hasattr(module, "lora_A"):  # a matrix has no more parts than its smaller side is long
            A, B = module.lora_A["default"], module.lora_B["default"]
            parts = min(r, A.in_features, B.out_features)
            A.weight.data, B.weight.data = A.weight.data[:parts], B.weight.data[:, :parts]
    return adapted


@method("lora_fa")
def lora_fa(model: nn.Module, r: int = 8, alpha: int = 16, dropout: float = 0.0, targets: Targets = None):
    """LoRA whose first matrix, A, stays random: a step keeps r values of a layer's input. Source: Zhang et al. 2023."""
    adapted = lora(model, r, alpha, dropout, targets)
    for name, parameter in adapted.named_parameters():
        if ".lora_A." in name:
            parameter.requires_grad_(False)
    return adapted


@method("lora_plus")
def lora_plus(
    model: nn.Module, r: int = 8, alpha: int = 16, dropout: float = 0.0, targets: Targets = None, ratio: float = 16.0
):
    """LoRA whose second matrix, B, learns `ratio` times as fast. Source: Hayou et al. 2024, LoRA+."""
    adapted = lora(model, r, alpha, dropout, targets)
    second = frozenset(name for name, _ in adapted.named_parameters() if ".lora_B." in name)
    return adapted, [ParameterGroup(second, rate=ratio)]


@method("ia3")
def ia3(model: nn.Module):
    """A factor for each key, value and inner unit of the MLPs, in the layers that peft's table names for a family.

    Source: Liu et al. 2022, Few-Shot Parameter-Efficient Fine-Tuning.
    """
    return _by_peft(model, "IA3Config")


@method("vera")
def vera(model: nn.Module, r: int = 64, dropout: float = 0.0, targets: Targets = None):
    """Two random matrices that all layers share, and two vectors for each layer. Source: Kopiczko et al. 2023, VeRA."""
    return _by_peft(model, "VeraConfig", r=r, vera_dropout=dropout, target_modules=targets or ALL)


@method("oft")
def oft(model: nn.Module, block: int = 16, targets: Targets = None):
    """Rotates each `block` inputs of a layer among themselves. Source: Qiu et al. 2023, Orthogonal Finetuning."""
    return _by_peft(model, "OFTConfig", r=0, oft_block_size=block, target_modules=targets or ALL)


@method("prompt_tuning")
def prompt_tuning(model: nn.Module, tokens: int = 16):
    """Vectors before the first token's, which start as those of some tokens. Source: Lester et al. 2021."""
    if classifies(model):
        raise ValueError("a classifier that reads vectors instead of tokens cannot tell padding from text")
    width = model.get_input_embeddings().weight.shape[1]
    hidden = getattr(model.config.get_text_config(), "hidden_size", width)
    if width != hidden:  # peft makes the vectors as wide as the one, and reads them back as wide as the other
        raise ValueError(
            f"{type(model).__name__} embeds tokens in {width} numbers and reads {hidden} in its blocks, and peft could "
            "not load such a prompt again: choose another method"
        )
    return _by_peft(model, "PromptTuningConfig", num_virtual_tokens=tokens, prompt_tuning_init="SAMPLE_VOCAB")


@method("prefix_tuning")
def prefix_tuning(model: nn.Module, tokens: int = 16):
    """Keys and values before the first token's, in every block; zero at first. Source: Li and Liang 2021."""
    return _by_peft(model, "PrefixTuningConfig", num_virtual_tokens=tokens, init_weights="zero")


@method("ln_tuning")
def ln_tuning(model: nn.Module):
    """The norms alone, as copies that a small file holds. Source: Zhao et al. 2023, Tuning LayerNorm in Attention."""
    norms = [name for name, module in model.named_modules() if is_norm(module)]
    return _by_peft(model, "LNTuningConfig", target_modules=norms)


def _by_peft(model: nn.Module, config: str, **settings: object):
    """peft's wrapper around a model, by the configuration of that name."""
    import peft

    kind = getattr(peft, config)
    make = four_bit_config(kind) if in_four_bits(model) else kind
    task = "SEQ_CLS" if classifies(model) else "CAUSAL_LM"
    try:
        with warnings.catch_warnings():  # of norms of classes that peft does not know by name, and copies all the same
            warnings.filterwarnings("ignore", message="Unsupported layer type")
            adapted = peft.get_peft_model(model, make(task_type=task, **settings))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # peft raises whatever it is that an architecture has not
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if "`target_modules`" in reason and "target_modules" not in settings:
            reason = "its table of layers has no entry for this architecture"
        raise ValueError(f"peft cannot adapt {type(model).__name__} by this method: {reason}") from error
    adapted.peft_config["default"].base_model_name_or_path = None  # said when it is saved; till then peft asks the hub
    return adapted
