"""Strategies that leave the model's own weights as they are, and train few new ones beside them; all by peft."""

import warnings

import torch
from torch import nn

from tlkit.models.adapters import classifies, in_four_bits
from tlkit.models.groups import ParameterGroup, set_groups
from tlkit.models.parts import find_blocks, is_norm
from tlkit.quantization import four_bit_config, quantize_linear_layers
from tlkit.strategies.registry import STRATEGIES, strategy

ALL = "all-linear"
Targets = str | list[str]


@strategy("lora", family="peft")
def lora(model: nn.Module, r: int = 8, alpha: int = 16, dropout: float = 0.0, targets: Targets = ALL):
    """Beside each linear layer a product of two thin matrices, alpha / r times.

    `targets` are names of layers, or "all-linear" for all but the head; where peft passes some of those over, as in
    mixtures of experts, the report's `doubts` say it. Source: Hu et al. 2021, LoRA.
    """
    return _with_lora("lora", model, r, alpha, dropout, targets)


@strategy("qlora", family="peft")
def qlora(model: nn.Module, method: str = "lora", **options):
    """The same, or another `method`, beside linear layers that are kept in 4 bits. Source: Dettmers et al. 2023."""
    if method == "qlora" or STRATEGIES.get(method, lora).__module__ != __name__:
        raise ValueError(f"qlora(method={method!r}): expected a method of peft, such as lora, dora or ia3")
    if method == "pissa":
        raise ValueError("qlora(method='pissa'): it begins with parts of the weights, which 4 bits do not hold")
    quantize_linear_layers(find_blocks(model), compute_dtype=model.dtype)
    model.is_loaded_in_4bit = True  # peft asks, and then makes the adapters that go with 4-bit layers
    try:
        return STRATEGIES[method](model, **options)
    except ValueError as error:
        raise ValueError(f"qlora, by {error}") from error


@strategy("dora", family="peft")
def dora(model: nn.Module, r: int = 8, alpha: int = 16, dropout: float = 0.0, targets: Targets = ALL):
    """LoRA turns the rows of a weight; how long each is becomes a weight of its own. Source: Liu et al. 2024, DoRA."""
    return _with_lora("dora", model, r, alpha, dropout, targets, use_dora=True)


@strategy("rslora", family="peft")
def rslora(model: nn.Module, r: int = 8, alpha: int = 16, dropout: float = 0.0, targets: Targets = ALL):
    """LoRA counted alpha / sqrt(r) times, so that a high rank learns as fast. Source: Kalajdzievski 2023."""
    return _with_lora("rslora", model, r, alpha, dropout, targets, use_rslora=True)


@strategy("pissa", family="peft")
def pissa(model: nn.Module, r: int = 8, alpha: int = 8, dropout: float = 0.0, targets: Targets = ALL):
    """LoRA that starts as the weight's largest singular parts, taken out of it. Source: Meng et al. 2024, PiSSA."""
    # A model on paper has no singular values; shapes are all that anybody asks of it.
    on_paper = next(model.parameters()).is_meta
    adapted = _with_lora("pissa", model, r, alpha, dropout, targets, init_lora_weights=on_paper or "pissa")
    if any(type(module).__name__ == "ParamWrapper" for module in adapted.modules()):
        raise ValueError("pissa: peft cannot adapt experts by this method: their weights are in no layers of their own")
    for module in adapted.modules() if on_paper else ():
        if hasattr(module, "lora_A"):  # a matrix has no more parts than its smaller side is long
            A, B = module.lora_A["default"], module.lora_B["default"]
            parts = min(r, A.in_features, B.out_features)
            A.weight.data, B.weight.data = A.weight.data[:parts], B.weight.data[:, :parts]
    return adapted


@strategy("lora_fa", family="peft")
def lora_fa(model: nn.Module, r: int = 8, alpha: int = 16, dropout: float = 0.0, targets: Targets = ALL):
    """LoRA whose first matrix, A, stays random: a step keeps r values of a layer's input. Source: Zhang et al. 2023."""
    adapted = _with_lora("lora_fa", model, r, alpha, dropout, targets)
    for name, parameter in adapted.named_parameters():
        if ".lora_A." in name:
            parameter.requires_grad_(False)
    return adapted


@strategy("lora_plus", family="peft")
def lora_plus(
    model: nn.Module, r: int = 8, alpha: int = 16, dropout: float = 0.0, targets: Targets = ALL, ratio: float = 16.0
):
    """LoRA whose second matrix, B, learns `ratio` times as fast. Source: Hayou et al. 2024, LoRA+."""
    adapted = _with_lora("lora_plus", model, r, alpha, dropout, targets)
    second = frozenset(name for name, _ in adapted.named_parameters() if ".lora_B." in name)
    set_groups(adapted, [ParameterGroup(second, rate=ratio)])
    return adapted


@strategy("ia3", family="peft")
def ia3(model: nn.Module):
    """A factor for each key, value and inner unit of the MLPs, in the layers that peft's table names for a family.

    Source: Liu et al. 2022, Few-Shot Parameter-Efficient Fine-Tuning.
    """
    return _by_peft("ia3", model, "IA3Config")


@strategy("vera", family="peft")
def vera(model: nn.Module, r: int = 64, dropout: float = 0.0, targets: Targets = ALL):
    """Two random matrices that all layers share, and two vectors for each layer. Source: Kopiczko et al. 2023, VeRA."""
    return _by_peft("vera", model, "VeraConfig", r=r, vera_dropout=dropout, target_modules=targets)


@strategy("oft", family="peft")
def oft(model: nn.Module, block: int = 16, targets: Targets = ALL):
    """Rotates each `block` inputs of a layer among themselves. Source: Qiu et al. 2023, Orthogonal Finetuning."""
    return _by_peft("oft", model, "OFTConfig", r=0, oft_block_size=block, target_modules=targets)


@strategy("prompt_tuning", family="peft")
def prompt_tuning(model: nn.Module, tokens: int = 16):
    """Vectors before the first token's, which start as those of some tokens. Source: Lester et al. 2021."""
    if classifies(model):
        raise ValueError(
            "prompt_tuning: a classifier that reads vectors instead of tokens cannot tell padding from text"
        )
    width = model.get_input_embeddings().weight.shape[1]
    hidden = getattr(model.config.get_text_config(), "hidden_size", width)
    if width != hidden:  # peft makes the vectors as wide as the one, and reads them back as wide as the other
        raise ValueError(
            f"prompt_tuning: {type(model).__name__} embeds tokens in {width} numbers and reads {hidden} in its blocks, "
            "and peft could not load such a prompt again: choose another method"
        )
    settings = {"num_virtual_tokens": tokens, "prompt_tuning_init": "SAMPLE_VOCAB"}
    return _by_peft("prompt_tuning", model, "PromptTuningConfig", **settings)


@strategy("prefix_tuning", family="peft")
def prefix_tuning(model: nn.Module, tokens: int = 16):
    """Keys and values before the first token's, in every block; zero at first. Source: Li and Liang 2021."""
    settings = {"num_virtual_tokens": tokens, "init_weights": "zero"}
    return _by_peft("prefix_tuning", model, "PrefixTuningConfig", **settings)


@strategy("ln_tuning", family="peft")
def ln_tuning(model: nn.Module):
    """The norms alone, as copies that a small file holds. Source: Zhao et al. 2023, Tuning LayerNorm in Attention."""
    norms = [name for name, module in model.named_modules() if is_norm(module)]
    return _by_peft("ln_tuning", model, "LNTuningConfig", target_modules=norms)


def _with_lora(name: str, model: nn.Module, r: int, alpha: int, dropout: float, targets: Targets, **more: object):
    settings = {"r": r, "lora_alpha": alpha, "lora_dropout": dropout, "target_modules": targets}
    return _by_peft(name, model, "LoraConfig", **settings, **more)


def _by_peft(name: str, model: nn.Module, config: str, **settings: object) -> nn.Module:
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
        raise ValueError(f"{name}: peft cannot adapt {type(model).__name__} by this method: {reason}") from error
    adapted.peft_config["default"].base_model_name_or_path = None  # said when it is saved; till then peft asks the hub
    return adapted
