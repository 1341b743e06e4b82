"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import torch


def _scores(q, k):
    return q @ k.T / q.shape[1] ** 0.5


def _weights(scores, diagonal=0):
    seen = torch.ones(len(scores), len(scores), dtype=torch.bool).tril(diagonal)
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


def _look_ahead(q, k, v):
    seen = torch.ones(len(q), len(q), dtype=torch.bool).triu()
    return _scores(q, k).masked_fill(~seen, -torch.inf).softmax(-1) @ v


def _same(owners):
    return owners[:, None] == owners[None, :]


def _causal(owners):
    return torch.ones(len(owners), len(owners), dtype=torch.bool).tril()


def _positions(owners):
    return (_same(owners) & _causal(owners)).sum(1) - 1


WRONG = {
    "ex02_1": [
        (1.5596, "mean loss in nats"),
        (2.25, "in bits"),
        (512, "the losses were summed"),
        (6.238, "summed loss in nats"),
        (4.0, "the mean was taken of the probabilities"),
        (5.5, "the mean of 1/p"),
        (0.2102, "the sign is turned round"),
        (2.948, "not of 2"),
        (7, "7 is not it"),
    ],
    "ex02_2": [
        (lambda q, k, v: _scores(q, k).softmax(-1) @ v, "where is the mask"),
        (lambda q, k, v: _weights(q @ k.T) @ v, "not divided by the square root"),
        (lambda q, k, v: _weights(q @ k.T / q.shape[1]) @ v, "its square root is asked for"),
        (lambda q, k, v: _weights(_scores(q, k), -1) @ v, "It may look at itself"),
        (_look_ahead, "look at the future only"),
        (lambda q, k, v: _scores(q, k).tril().softmax(-1) @ v, "set to zero"),
        (lambda q, k, v: _weights(_scores(k, q)) @ v, "in each other's place"),
        (lambda q, k, v: _weights(_scores(q, k)), "multiply them with v"),
        (
            lambda q, k, v: _scores(q, k).masked_fill(~_causal(q), -torch.inf).softmax(0) @ v,
            "The weights of each *row* add up to one",
        ),
        (lambda q, k, v: v, "the numbers are others"),
        (lambda q, k, v: 3, "a tensor is asked for"),
    ],
    "ex02_3": [
        (lambda owners: (_causal(owners), _positions(owners)), "across the border of a document"),
        (lambda owners: (_same(owners), _positions(owners)), "which is the future"),
        (lambda owners: (_same(owners) & _causal(owners).tril(-1), _positions(owners)), "may not look at itself"),
        (lambda owners: (~_same(owners) & _causal(owners), _positions(owners)), "may not look at"),
        (
            lambda owners: (_same(owners) & _causal(owners), torch.arange(len(owners))),
            "each document begins at 0 again",
        ),
        (lambda owners: (_same(owners) & _causal(owners), _positions(owners) + 1), "begin at 1"),
        (lambda owners: (_same(owners) & _causal(owners)).float(), "two tensors are asked for"),
        (lambda owners: ((_same(owners) & _causal(owners)).float(), _positions(owners)), "expected True and False"),
        (lambda owners: (_same(owners)[0], _positions(owners)), "expected a tensor of shape"),
    ],
}
