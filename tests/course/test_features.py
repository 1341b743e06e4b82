"""Balanced accuracy counts classes alike, and its interval covers the truth."""

import pytest
import torch

from tlkit.evidence.classification import balanced_accuracy, balanced_interval


def test_each_class_counts_once():
    labels = torch.tensor([0] * 9 + [1])
    assert balanced_accuracy(torch.zeros(10, dtype=torch.long), labels) == 0.5
    found = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    assert balanced_accuracy(found, labels) == pytest.approx((6 / 9 + 1) / 2)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Of 200 samples of 60 texts, each right with a probability of 0.6; with so few, an interval covers a bit less."""
    generator, covered = torch.Generator().manual_seed(0), 0
    labels = torch.arange(60) % 3
    for _ in range(200):
        right = torch.rand(60, generator=generator) < 0.6
        low, high = balanced_interval(torch.where(right, labels, (labels + 1) % 3), labels)
        covered += low <= 0.6 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_seeds_widen_the_interval():
    labels = torch.arange(30) % 3
    runs = torch.stack([labels, (labels + 1) % 3])
    low, high = balanced_interval(runs, labels)
    assert low < 0.05 and high > 0.95
