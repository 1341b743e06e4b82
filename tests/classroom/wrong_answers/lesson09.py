"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import torch


def _nearest(scaled, levels):
    return (scaled[:, None] - levels).abs().argmin(1)


def _by_largest(weights, levels, block):
    return torch.cat([levels[_nearest(part / part.max(), levels)] * part.max() for part in weights.split(block)])


def _by_one_scale(weights, levels, block):
    scale = weights.abs().max()
    return levels[_nearest(weights / scale, levels)] * scale


def _without_scale(weights, levels, block):
    return torch.cat([levels[_nearest(part / part.abs().max(), levels)] for part in weights.split(block)])


def _places(weights, levels, block):
    return torch.cat([_nearest(part / part.abs().max(), levels) for part in weights.split(block)])


def _not_divided(weights, levels, block):
    return torch.cat([levels[_nearest(part, levels)] * part.abs().max() for part in weights.split(block)])


def _below(weights, levels, block):
    parts = [(part / part.abs().max(), part.abs().max()) for part in weights.split(block)]
    return torch.cat([levels[torch.searchsorted(levels, part, right=True) - 1] * scale for part, scale in parts])


def _in_place(weights, levels, block):
    for part in weights.split(block):
        scale = part.abs().max()
        part /= scale
        part.copy_(levels[_nearest(part, levels)] * scale)
    return weights


def _in_rows(weights, levels, block):
    rows = weights.view(-1, block)
    scale = rows.abs().amax(1, keepdim=True)
    return (levels[((rows / scale)[..., None] - levels).abs().argmin(-1)] * scale).flatten()


WRONG = {
    "ex09_1": [
        (4.13, "the scales are quantised too"),
        (4 + 8 / 64 + 32 / (64 * 256), "the scales are quantised too"),
        (4.125, "that takes 8 bits for a scale"),
        (4, "the code alone"),
        (36, "a scale of its own"),
        (0.5, "share of the scale"),
        (6, "the wrong way round"),
        (0.5625, "these are bytes"),
        ("4.5", "a number is asked for"),
        (5, "5 is not it"),
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
        (_by_one_scale, "one scale was taken for all blocks"),
        (_by_largest, "*absolute* value"),
        (_without_scale, "without their block's scale"),
        (_places, "these are places in `levels`"),
        (_not_divided, "not divided by it"),
        (_below, "takes the level below"),
        (_in_place, "changes what it was given"),
        (_in_rows, "stopped with RuntimeError"),
        (lambda weights, levels, block: weights, "nothing was rounded"),
        (lambda weights, levels, block: weights.view(-1, 1), "in the shape that they had"),
        (lambda weights, levels, block: weights.tolist(), "a tensor is asked for"),
    ],
}
