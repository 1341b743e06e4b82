"""What is declared trainable receives a gradient and moves; planted faults are found and named."""

import re

import pytest
import torch

from tlkit.evidence.expectations import gradient_flow
from tlkit.models import load_model
from tlkit.strategies import apply_strategy, strategies_named

pytestmark = pytest.mark.usefixtures("shallow")
BLOCKS = torch.randint(4096, (2, 32), generator=torch.Generator().manual_seed(0))


def adapted(strategy, **options):
    return apply_strategy(load_model("tiny").model, strategy, **options)


@pytest.mark.parametrize("strategy", strategies_named(["all"]))
def test_every_strategy_moves_what_it_declares_and_nothing_else(strategy):
    report = adapted(strategy)
    before = {name: tensor.clone() for name, tensor in report.model.state_dict().items()}
    flow = gradient_flow(report, BLOCKS)
    assert flow.fault.eq("").all() and len(flow) == report.total_tensors
    trainable = flow[flow.declared]
    assert set(trainable.tensor) == report.trainable and len(trainable) == report.trainable_tensors
    assert trainable.moved_2.all() and not flow[~flow.declared][["moved_1", "moved_2"]].any(axis=None)
    assert all(torch.equal(before[name], tensor) for name, tensor in report.model.state_dict().items())


def test_b_of_an_adapter_moves_first_and_a_second():
    table = gradient_flow(adapted("lora"), BLOCKS).set_index("tensor")
    a, b = (table[table.index.str.contains(f"lora_{part}")] for part in "AB")
    assert b.moved_1.all() and (a.norm_1 == 0).all() and not a.moved_1.any()
    assert (a.norm_2 > 0).all() and a.moved_2.all()


def test_the_norms_are_those_of_an_independent_backward_pass():
    """1e-4 relative: the same sums in fp32, once as a sum divided by the tokens, once as the library's mean."""
    report = adapted("freeze_lower")
    found = gradient_flow(report, BLOCKS).set_index("tensor").norm_1
    report.model(input_ids=BLOCKS, labels=BLOCKS).loss.backward()
    for name in report.trainable:
        expected = report.model.get_parameter(name).grad.norm().item()
        assert found[name] == pytest.approx(expected, rel=1e-4), name


def outside_the_graph(report):
    """The published fault: adapters exist, and the forward pass does not use them."""
    for module in report.model.modules():
        if hasattr(module, "lora_A"):
            module.forward = module.base_layer.forward


def half_outside_the_graph(report):
    module = next(module for module in report.model.modules() if hasattr(module, "lora_A"))
    module.forward = module.base_layer.forward


def detached(report):
    report.model.model.layers[-2].register_forward_hook(lambda module, inputs, output: output.detach())


def frozen_norm(report):
    report.model.model.norm.requires_grad_(False)


def thawed_block(report):
    report.model.model.layers[0].requires_grad_(True)


@pytest.mark.parametrize(
    ("strategy", "plant", "said"),
    [
        ("lora", half_outside_the_graph, "q_proj.lora_A.default.weight: trainable, but no gradient reaches it"),
        ("full", detached, "embed_tokens.weight|layers.0.*: trainable, but no gradient reaches it"),
        ("last_layers", frozen_norm, "^model.norm.weight: declared trainable, but frozen since"),
        ("last_layers", thawed_block, "layers.0.*: declared frozen, but receives a gradient or moves"),
    ],
)
def test_a_planted_fault_is_found_and_named(strategy, plant, said):
    report = adapted(strategy)
    plant(report)
    flow = gradient_flow(report, BLOCKS)
    faulty = flow[flow.fault != ""]
    faults = "; ".join(faulty.tensor + ": " + faulty.fault)
    assert re.search(said, faults), faults


def test_adapters_that_are_all_outside_the_graph_cannot_train_at_all():
    """No gradient at all reaches anything: torch itself refuses the step."""
    report = adapted("lora")
    outside_the_graph(report)
    faults = gradient_flow(report, BLOCKS).set_index("tensor").fault
    assert set(faults[faults != ""].index) == report.trainable and len(report.trainable) == 42
    assert faults[faults != ""].eq("trainable, but no gradient reaches it").all()


def test_a_step_that_is_lost_in_rounding_is_said():
    """A norm's weights are near 1.0, where bf16 has steps of 0.0078 and 0.0039; the matrices are small, and move."""
    model = load_model("tiny").model.to(torch.bfloat16)
    flow = gradient_flow(apply_strategy(model, "last_layers", blocks=1), BLOCKS)
    faulty = flow[flow.fault != ""]
    assert faulty.tensor.str.contains("norm.weight").all() and len(faulty)
    assert faulty.fault.eq("has a gradient, but a step is lost in its rounding").all()
