"""Steps that should come to the same, whichever way they are carried out: for the tests of those ways."""

import torch
from small_models import small_model
from torch import nn

from tlkit.steps import Plan, accumulate_gradients
from tlkit.strategies import apply_strategy

BLOCKS = torch.randint(64, (6, 12), generator=torch.Generator().manual_seed(0))
# The same products, summed in another order: 2^-24 and 2^-53 for each of some hundred terms.
ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-10}


def as_trained(model: nn.Module) -> nn.Module:
    """At first B is zero, and A's gradient with it."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "lora_embedding_B" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def with_lora(kind: str = "qwen2", dtype: torch.dtype = torch.float32, blocks: int = 3, **options) -> nn.Module:
    # The kernel for experts knows no fp64.
    experts = {"experts_implementation": "eager"} if kind == "mixtral" else {}
    model = small_model(kind, num_hidden_layers=blocks, **experts).to(dtype)
    torch.manual_seed(2)
    return as_trained(apply_strategy(model, "lora", **options).model)


def step(model: nn.Module, plan: Plan, seed: int = 3) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The losses of a step, and its gradients by name."""
    torch.manual_seed(seed)
    model.zero_grad()
    losses = torch.stack(accumulate_gradients(model, BLOCKS, plan))
    return losses, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(found: tuple, expected: tuple, tolerance: float) -> None:
    """Relative to the size of each tensor."""
    torch.testing.assert_close(found[0], expected[0], rtol=tolerance, atol=0)
    assert found[1].keys() == expected[1].keys() and expected[1]
    for name, gradient in expected[1].items():
        assert gradient.norm() > 0 and (found[1][name] - gradient).norm() <= tolerance * gradient.norm(), name
