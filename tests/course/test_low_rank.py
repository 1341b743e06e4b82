"""The parts of a change add up to it, cut where they should be cut, and only linear layers of blocks are touched."""

import copy

import pytest
import torch

from course.lesson05.low_rank import cut_to_rank, decompose_change, rank_table, ranks_needed
from tlkit.models import load_model


@pytest.fixture(scope="module")
def base():
    return load_model("tiny").model


@pytest.fixture(scope="module")
def moved(base):
    """The base model with a change of rank 3 in every matrix of its blocks, and another embedding."""
    torch.manual_seed(0)
    adapted = copy.deepcopy(base)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if weight.ndim == 2 and "layers" in name:
                weight += 0.01 * torch.randn(len(weight), 3) @ torch.randn(3, weight.shape[1])
        adapted.get_input_embeddings().weight += 1.0
    return adapted


def test_the_change_of_every_linear_layer_in_the_blocks_is_taken_apart_and_nothing_else(base, moved):
    change = decompose_change(base, moved)
    linear = {n for n, p in base.named_parameters() if p.ndim == 2 and "layers" in n}
    assert change.keys() == linear and len(linear) == 7 * 8
    for name, part in change.items():
        expected = moved.get_parameter(name) - base.get_parameter(name)
        assert torch.allclose(part.cut(3), expected, atol=1e-5)  # of rank 3, so three parts are all of it
        assert part.cut(0).count_nonzero() == 0
        assert part.rank_for(0.999) <= 3


def test_a_cut_is_no_further_away_than_the_values_it_leaves_out(base, moved):
    """Eckart and Young: the distance is the root of the squared values that are left out."""
    for part in list(decompose_change(base, moved).values())[:3]:
        distance = (part.cut(3) - part.cut(1)).norm()
        assert distance == pytest.approx(part.values[1:3].pow(2).sum().sqrt().item(), rel=1e-4)
        assert part.shares[0] == pytest.approx(1 - (distance / part.values.norm()).item() ** 2, abs=1e-5)


def test_the_cut_model_has_the_linear_layers_of_the_adapted_one_and_all_else_of_the_base(base, moved):
    before = {name: weight.clone() for name, weight in base.named_parameters()}
    whole = cut_to_rank(base, decompose_change(base, moved), 192)
    for name, weight in whole.named_parameters():
        source = moved if weight.ndim == 2 and "layers" in name else base
        assert torch.allclose(weight, source.get_parameter(name), atol=1e-5), name
    assert all(before[name].equal(weight) for name, weight in base.named_parameters())


def test_the_table_gives_the_share_of_the_change_and_the_share_of_the_gain(base, moved):
    """Scored by a loss whose answer is known: the squared distance of one matrix to where it was moved to."""
    change = decompose_change(base, moved)
    name, part = next(iter(change.items()))
    calls = []

    def score(model):
        calls.append(model)
        return float((model.get_parameter(name) - moved.get_parameter(name)).pow(2).sum())

    table = rank_table(base, {name: part}, score, [1, 2, 192])
    assert table.gain.tolist() == pytest.approx(part.shares[[0, 1, -1]].tolist(), abs=1e-4)
    assert table["size"].tolist() == pytest.approx(table.gain.tolist(), abs=1e-4)
    assert len(calls) == 4  # the base model, and each rank once
    both = rank_table(base, change, score, [0, 192])
    assert both.gain.tolist() == [0.0, 1.0] and both["size"].tolist() == pytest.approx([0.0, 1.0])


def test_the_ranks_needed_are_those_that_were_planted(base, moved):
    table = ranks_needed(decompose_change(base, moved), 0.9999)
    assert table.shape == (7, 8) and list(table.columns) == list(range(8))
    assert set(table.index) == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert (table == 3).all().all()


def test_a_share_that_is_met_exactly_needs_no_further_rank(base):
    adapted = copy.deepcopy(base)
    with torch.no_grad():
        for weight in adapted.parameters():
            if weight.ndim == 2 and weight.shape[0] == weight.shape[1]:
                weight.zero_()
                weight[range(4), range(4)] = 1.0
        for weight in (zero := copy.deepcopy(adapted)).parameters():
            weight.zero_()
    change = decompose_change(zero, adapted)["model.layers.0.self_attn.q_proj.weight"]
    assert [change.rank_for(share) for share in (0.25, 0.26, 0.5, 1.0)] == [1, 2, 2, 4]
