"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import torch


def _even(part, low, high, steps, whole=torch.round):
    gap = (high - low) / steps
    return low + gap * whole((part - low) / gap)


def _each(way):
    return lambda weights, bits, block: torch.cat([way(part, 2**bits - 1) for part in weights.split(block)])


def _one_range(weights, bits, block):
    return _even(weights, weights.min(), weights.max(), 2**bits - 1)


def _in_place(weights, bits, block):
    for part in weights.split(block):
        part.copy_(_even(part, part.min(), part.max(), 2**bits - 1))
    return weights


def _in_rows(weights, bits, block):
    rows = weights.view(-1, block)
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    return _even(rows, low, high, 2**bits - 1).flatten()


def _codes(part, steps):
    return ((part - part.min()) / (part.max() - part.min()) * steps).round()


WRONG = {
    "ex09_1": [
        (4.5, "a scale *and* its smallest weight"),
        (4.127, "NF4 with double quantisation"),
        (4, "the code alone"),
        (36, "numbers of its own"),
        (20, "a scale of its own"),
        (1, "one weight's share"),
        (0.625, "these are bytes"),
        (160, "the whole block"),
        ("5", "a number is asked for"),
        (6, "6 is not it"),
    ],
    "ex09_2": [
        (lambda packed, peak: packed * (16 - 4.127) / 8 / peak, "percent are asked for"),
        (lambda packed, peak: 100 * (1 - packed * (16 - 4.127) / 8 / peak), "this is what is left"),
        (lambda packed, peak: 100 * (1 - 4.127 / 16), "the saving in the weights alone"),
        (lambda packed, peak: 100 * packed * (16 - 4.127) / peak, "takes bits for bytes"),
        (lambda packed, peak: 100 * packed * (16 - 4) / 8 / peak, "the scales are missing"),
        (lambda packed, peak: 100 * packed * 2 / peak, "gone altogether"),
        (lambda packed, peak: 100 * packed * 4.127 / 8 / peak, "still take"),
        (lambda packed, peak: 100 * (peak / (peak - packed * (16 - 4.127) / 8) - 1), "the smaller peak"),
        (lambda packed, peak: packed * (16 - 4.127) / 8, "these are the bytes saved"),
    ],
    "ex09_3": [
        (_one_range, "one range was taken for all blocks"),
        (_each(lambda part, steps: _even(part, part.min(), part.max(), steps + 1)), "one level too many"),
        (_each(lambda part, steps: _even(part, part.min(), part.max(), steps, torch.floor)), "takes the level below"),
        (_each(lambda part, steps: _even(part, part.min(), part.max(), steps) - part.min()), "not added again"),
        (_each(lambda part, steps: _codes(part, steps) / steps), "the range of the block is missing"),
        (_each(_codes), "these are codes"),
        (_each(lambda part, steps: _even(part, -part.abs().max(), part.abs().max(), steps)), "*absolute* value"),
        (_each(lambda part, steps: _even(part, part.min(), part.max(), steps)), "you divide by it"),
        (_in_place, "changes what it was given"),
        (_in_rows, "stopped with RuntimeError"),
        (lambda weights, bits, block: weights, "nothing was rounded"),
        (lambda weights, bits, block: weights.view(-1, 1), "in the shape that they had"),
        (lambda weights, bits, block: weights.tolist(), "a tensor is asked for"),
    ],
}
