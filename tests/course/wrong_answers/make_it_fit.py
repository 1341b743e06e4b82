"""What students answer instead, and a part of what they are told, where the judge has no table of mistakes."""

import torch
from torch.nn.functional import cross_entropy


def _pieces(inputs, targets, rows):
    return list(zip(inputs.split(rows), targets.split(rows), strict=True))


def _loss(model, inputs, targets, reduction="mean"):
    return cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction=reduction)


def _summing(divisor, returned="sum"):
    """Sums of the pieces, each divided by what `divisor` makes of targets and pieces."""

    def gradients(model, inputs, targets, rows):
        pieces, losses = _pieces(inputs, targets, rows), []
        for some, wanted in pieces:
            losses.append(_loss(model, some, wanted, "sum") / divisor(targets, pieces))
            losses[-1].backward()
        return losses[-1] if returned == "last" else sum(losses)

    return gradients


def _counted(targets, pieces=()):
    return (targets != -100).sum()


def _meaning(share):
    """Means of the pieces, each times what `share` makes of its targets, all targets and pieces."""

    def gradients(model, inputs, targets, rows):
        pieces, loss = _pieces(inputs, targets, rows), 0.0
        for some, wanted in pieces:
            part = _loss(model, some, wanted) * share(wanted, targets, pieces)
            part.backward()
            loss += part.item()
        return loss

    return gradients


# Weighs the means rightly, and stumbles over a mean of nothing.
_hollow = _meaning(lambda wanted, targets, pieces: _counted(wanted) / _counted(targets))


def _dropped(model, inputs, targets, rows):
    for some, wanted in _pieces(inputs, targets, rows):
        model.zero_grad()
        part = _loss(model, some, wanted)
        part.backward()
    return part.item()


def _dropped_at_the_end(model, inputs, targets, rows):
    loss = _summing(_counted)(model, inputs, targets, rows)
    model.zero_grad()
    return loss


def _whole(model, inputs, targets, rows):
    loss = _loss(model, inputs, targets)
    loss.backward()
    return loss.item()


def _trains(model, inputs, targets, rows):
    loss = _summing(_counted)(model, inputs, targets, rows)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return loss


WRONG = {
    "ex10_1": [
        (_meaning(lambda wanted, targets, pieces: 1 / len(pieces)), "each piece is divided by its own number"),
        (_meaning(lambda wanted, targets, pieces: 1), "the means of the pieces are added up"),
        (_hollow, "What is the mean of no losses?"),
        (_dropped, "the last piece alone"),
        (_dropped_at_the_end, "without a gradient"),
        (_whole, "rows went through the model at once"),
        (_trains, "the weights have changed"),
        (_summing(lambda targets, pieces: 1), "divided by nothing"),
        (_summing(lambda targets, pieces: targets.numel()), "also by those of -100"),
        (_summing(lambda targets, pieces: len(targets)), "divided by the rows"),
        (_summing(lambda targets, pieces: _counted(targets) * len(pieces)), "divided twice"),
        (_summing(_counted, returned="last"), "the loss that you return is not"),
    ],
}
