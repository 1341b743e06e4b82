"""The strategies: some train a model's own weights, those of peft new ones beside them."""

import warnings
from functools import partial
from typing import NamedTuple

import peft
import torch
from torch import nn

from tlkit.models.parts import ParameterGroup, classifies, find_blocks, in_four_bits
from tlkit.quantization import four_bit_config, quantize_linear_layers
from tlkit.strategies.registry import Groups, strategy

ALL = "all-linear"  # `targets` where no layers are named: all but the head
LORA = {"r": 8, "alpha": 16, "dropout": 0.0, "targets": None}
PEFT_NAMES = {
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "targets": "target_modules",
    "block": "oft_block_size",
    "tokens": "num_virtual_tokens",
}


@strategy("full", family="weights")
def full(model: nn.Module) -> nn.Module:
    """Every weight."""
    return model.requires_grad_(True)


@strategy("freeze_lower", family="weights")
def freeze_lower(model: nn.Module, freeze_embeddings: bool = False) -> None:
    """The lower half of the blocks is frozen; with frozen embeddings it needs no backward pass."""
    blocks = find_blocks(model)
    model.requires_grad_(True)
    for block in blocks[: len(blocks) // 2]:
        block.requires_grad_(False)
    if freeze_embeddings:
        _freeze_embeddings(model)


@strategy("freeze_embeddings", family="weights")
def freeze_embeddings(model: nn.Module) -> None:
    """Where the head is tied to the embedding, it is frozen with it."""
    _freeze_embeddings(model.requires_grad_(True))


@strategy("last_layers", family="weights")
def last_layers(model: nn.Module, blocks: int = 2, train_norms: bool = True, train_head: bool = False) -> None:
    """The last blocks, by default with every norm, as in the published experiment."""
    layers = find_blocks(model)
    if not 1 <= blocks <= len(layers):
        raise ValueError(f"blocks={blocks}: expected 1 to {len(layers)} for this model")
    norms = [module for module in model.modules() if _is_norm(module)] if train_norms else []
    head = [model.get_output_embeddings()] if train_head else []
    for module in (*layers[-blocks:], *norms, *head):
        module.requires_grad_(True)


@strategy("linear_probe", family="head")
def linear_probe(model: nn.Module) -> None:
    """Nothing but a classifier's new head, which every strategy trains."""
    if not classifies(model):
        raise ValueError(f"{type(model).__name__} has no new head, which is all that it trains: classify with it")


@strategy("bitfit", family="weights")
def bitfit(model: nn.Module) -> None:
    """Bias vectors only. Source: Ben Zaken et al. 2022, BitFit."""
    # Those of experts are parameters of their own, such as gate_up_proj_bias.
    biases = [p for name, p in model.named_parameters() if name.endswith((".bias", "_bias"))]
    if not biases:
        raise ValueError(f"{type(model).__name__} has no bias vectors")
    for bias in biases:
        bias.requires_grad_(True)


# Both schedules are of Howard and Ruder 2018, Universal Language Model Fine-tuning for Text Classification (ULMFiT).
@strategy("gradual_unfreezing", family="weights")
def gradual_unfreezing(model: nn.Module, phases: int = 4) -> tuple[nn.Module, Groups]:
    """From the head down, in phases of equal length: the embedding, and a head that is tied to it, with the last."""
    levels = _levels(model.requires_grad_(True))
    if not 2 <= phases <= len(levels):
        raise ValueError(f"phases={phases}: expected 2 to {len(levels)} for this model")
    groups = []
    for phase in range(phases):
        chosen = [names for level, names in enumerate(levels) if level * phases // len(levels) == phase]
        groups.append(ParameterGroup(frozenset().union(*chosen), begins=phase / phases))
    return model, groups


@strategy("discriminative_rates", family="weights")
def discriminative_rates(model: nn.Module, lowest: float = 0.1) -> tuple[nn.Module, Groups]:
    """Everything, at rates that fall by a factor a block, to `lowest` times the run's in the embedding."""
    if not 0 < lowest < 1:
        raise ValueError(f"lowest={lowest}: expected a multiple of the rate between 0 and 1")
    levels = _levels(model.requires_grad_(True))
    steps = len(levels) - 1
    return model, [ParameterGroup(names, rate=lowest ** (level / steps)) for level, names in enumerate(levels)]


def _is_norm(module: nn.Module) -> bool:
    """By class, never by the name that the module has in its parent."""
    if any(module.children()):  # a part of it may be a norm
        return False
    kind = type(module).__name__  # such as MambaRMSNormGated
    return isinstance(module, nn.LayerNorm | nn.RMSNorm) or "RMSNorm" in kind or "LayerNorm" in kind


def _freeze_embeddings(model: nn.Module) -> None:
    """Of tokens, and of positions where they are learned outside the blocks."""
    inside = {id(module) for module in find_blocks(model).modules()}
    for module in model.modules():
        if isinstance(module, nn.Embedding) and id(module) not in inside:
            module.requires_grad_(False)


def _levels(model: nn.Module) -> list[frozenset[str]]:
    """The names of weights from the top: head and final norm, the blocks from the last on, the embedding."""
    blocks = find_blocks(model)
    depths = {id(p): 0 for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    depths |= {id(p): depth for depth, block in enumerate(blocks, 1) for p in block.parameters()}
    names_at = [set() for _ in range(len(blocks) + 2)]
    for name, parameter in model.named_parameters():
        names_at[depths.get(id(parameter), len(blocks) + 1)].add(name)
    return [frozenset(names) for names in reversed(names_at) if names]


class Method(NamedTuple):
    """A method of peft."""

    config: type[peft.PeftConfig]
    options: dict[str, object]  # with their defaults
    settings: dict[str, object]  # what is set besides


METHODS = {
    # Beside each linear layer a product of two thin matrices, alpha / r times. Source: Hu et al. 2021, LoRA.
    "lora": Method(peft.LoraConfig, LORA, {}),
    # LoRA turns the rows of a weight; the length of each is learned apart. Source: Liu et al. 2024, DoRA.
    "dora": Method(peft.LoraConfig, LORA, {"use_dora": True}),
    # LoRA times alpha / sqrt(r), so that a high rank learns as fast. Source: Kalajdzievski 2023.
    "rslora": Method(peft.LoraConfig, LORA, {"use_rslora": True}),
    # A factor for each key, value and inner unit of the MLPs, in the layers that peft's table names for a family.
    # Source: Liu et al. 2022, Few-Shot Parameter-Efficient Fine-Tuning.
    "ia3": Method(peft.IA3Config, {}, {}),
    # Two random matrices for all layers, and two vectors for each. Source: Kopiczko et al. 2023, VeRA.
    "vera": Method(peft.VeraConfig, {"r": 64, "targets": None}, {}),
    # Rotates each `block` inputs of a layer among themselves. Source: Qiu et al. 2023, Orthogonal Finetuning.
    "oft": Method(peft.OFTConfig, {"block": 16, "targets": None}, {"r": 0}),
    # Keys and values before the first token's, in every block. Source: Li and Liang 2021.
    "prefix_tuning": Method(peft.PrefixTuningConfig, {"tokens": 16}, {"init_weights": "zero"}),
}


def adapt(method: Method, model: nn.Module, **options: object) -> nn.Module:
    """Put a method's adapters into a model; returns peft's wrapper."""
    make = four_bit_config(method.config) if in_four_bits(model) else method.config
    settings = {PEFT_NAMES.get(name, name): value for name, value in (method.options | options).items()}
    if "targets" in method.options:
        settings["target_modules"] = settings["target_modules"] or ALL
    task = "SEQ_CLS" if classifies(model) else "CAUSAL_LM"
    try:
        with warnings.catch_warnings():  # norms of unknown names are copied all the same
            warnings.filterwarnings("ignore", message="Unsupported layer type")
            adapted = peft.get_peft_model(model, make(task_type=task, **settings, **method.settings))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of any kind, where an architecture lacks what peft reads
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if "`target_modules`" in reason and method.config is peft.IA3Config:
            reason = "its table of layers has no entry for this architecture"
        raise ValueError(f"peft cannot adapt {type(model).__name__} by this method: {reason}") from error
    adapted.peft_config["default"].base_model_name_or_path = None  # or peft asks the hub
    return adapted


for _name, _method in METHODS.items():
    strategy(_name, "peft", _method.options)(partial(adapt, _method))


@strategy("qlora", "peft", LORA)
def qlora(model: nn.Module, **options: object) -> nn.Module:
    """LoRA beside linear layers that are kept in 4 bits. Source: Dettmers et al. 2023, QLoRA."""
    quantize_linear_layers(find_blocks(model))
    model.is_loaded_in_4bit = True  # which peft asks for
    return adapt(METHODS["lora"], model, **options)


@strategy("pissa", "peft", PISSA := LORA | {"alpha": 8})
def pissa(model: nn.Module, **options: object) -> nn.Module:
    """LoRA that starts as the largest singular parts of a weight, taken out of it. Source: Meng et al. 2024, PiSSA."""
    on_paper = next(model.parameters()).is_meta  # without singular values
    adapted = adapt(Method(peft.LoraConfig, PISSA, {"init_lora_weights": on_paper or "pissa"}), model, **options)
    if any(type(module).__name__ == "ParamWrapper" for module in adapted.modules()):
        raise ValueError("peft cannot adapt experts by this method: they are no layers of their own")
    return adapted


@strategy("lora_fa", "peft", LORA)
def lora_fa(model: nn.Module, **options: object) -> nn.Module:
    """LoRA whose A stays random: a step keeps r values of a layer's input. Source: Zhang et al. 2023."""
    adapted = adapt(METHODS["lora"], model, **options)
    for name, parameter in adapted.named_parameters():
        if ".lora_A." in name:
            parameter.requires_grad_(False)
    return adapted


@strategy("lora_plus", "peft", LORA | {"ratio": 16.0})
def lora_plus(model: nn.Module, ratio: float = 16.0, **options: object) -> tuple[nn.Module, Groups]:
    """LoRA whose B learns `ratio` times as fast. Source: Hayou et al. 2024, LoRA+."""
    adapted = adapt(METHODS["lora"], model, **options)
    second = frozenset(name for name, _ in adapted.named_parameters() if ".lora_B." in name)
    return adapted, [ParameterGroup(second, rate=ratio)]


@strategy("prompt_tuning", "peft")
def prompt_tuning(model: nn.Module, tokens: int = 16) -> nn.Module:
    """Vectors before the first token's, at first those of some tokens. Source: Lester et al. 2021."""
    if classifies(model):
        raise ValueError("a classifier cannot tell padding from text where it reads vectors")
    width = model.get_input_embeddings().weight.shape[1]
    hidden = getattr(model.config.get_text_config(), "hidden_size", width)
    if width != hidden:  # peft makes vectors of the one width, and reads them back in the other
        raise ValueError(f"{type(model).__name__} embeds tokens in {width} numbers and its blocks read {hidden}")
    return adapt(Method(peft.PromptTuningConfig, {}, {"prompt_tuning_init": "SAMPLE_VOCAB"}), model, tokens=tokens)


@strategy("ln_tuning", "peft")
def ln_tuning(model: nn.Module) -> nn.Module:
    """Copies of the norms. Source: Zhao et al. 2023, Tuning LayerNorm in Attention."""
    norms = [name for name, module in model.named_modules() if _is_norm(module)]
    return adapt(Method(peft.LNTuningConfig, {}, {"target_modules": norms}), model)
