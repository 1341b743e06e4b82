"""A card with a driver that is not there: what only a real device has, its counters and its limit, played by a mode.

The virtual card of tlkit is known to tlkit as such. This one is not: the checks take it for a real device, and call
what they would call there.
"""

import gc
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from tlkit.acceptance import counters
from tlkit.acceptance.bench import Bench, bench_for
from tlkit.devices import Device, probe
from tlkit.memory import VirtualDevice
from tlkit.settings import setup

TOKENS = 16


@dataclass(frozen=True)
class Card(Device):
    """A processor that has a host, and whose memory is counted while its driver runs."""

    driver: VirtualDevice = field(default_factory=lambda: VirtualDevice("pretended", 2**40))

    has_host = True

    def host(self):
        return self.driver.host()


@cache
def small_bench() -> Bench:
    """Of a processor, with three of the model's blocks, so that a step takes milliseconds."""
    setup()
    bench = bench_for(probe("cpu"), tokens=TOKENS)
    model = bench.loaded.model
    model.model.layers, model.config.num_hidden_layers = model.model.layers[:3], 3
    return bench


class BenchOfCard(Bench):
    is_real = True


def bench_of_card(bench: Bench) -> BenchOfCard:
    """The bench of a processor, as one of a card."""
    card = Card(**vars(bench.device))
    return BenchOfCard(card, bench.loaded, bench.blocks, bench.validation, bench.host, bench._references)


@contextmanager
def driver_of(bench: BenchOfCard, monkeypatch, counts: float = 1.0):
    """Inside, the driver runs; its counter shows `counts` times what is held."""
    driver = bench.device.driver

    @contextmanager
    def peak_counted(device):
        driver.peak = driver.current
        yield lambda: driver.peak * counts

    def give_back(kind):
        gc.collect()
        driver.peak = driver.current

    @contextmanager
    def limited(device, most):
        give_back("cpu")
        driver.budget = most
        try:
            yield
        finally:
            driver.budget = 2**40

    for name, value in {
        "held": lambda device: driver.current,
        "give_back": give_back,
        "reserved": lambda device: driver.peak,
        "peak_counted": peak_counted,
        "can_be_limited": lambda device: True,
        "limited": limited,
    }.items():
        monkeypatch.setattr(counters, name, value)
    with driver:
        yield driver
