"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import math

FROZEN, TRAINED = 494_032_768, 4_399_104
GRADIENTS = 4 * TRAINED / 1e6  # MB


def _tokens(blocks):
    return sum(map(len, blocks))


def _losses(blocks):
    return sum(map(sum, blocks))


def mean_of_means(blocks, rank, size):
    mine = blocks[rank::size]
    return _losses(mine) / _tokens(mine) / size


def own_mean(blocks, rank, size):
    mine = blocks[rank::size]
    return _losses(mine) / _tokens(mine)


def in_runs(blocks, rank, size):
    """Rounded up; weighed wrongly."""
    most = math.ceil(len(blocks) / size)
    mine = blocks[rank * most : (rank + 1) * most]
    return _losses(mine) / _tokens(mine) / size


def left_over(blocks, rank, size):
    most = len(blocks) // size
    return _losses(blocks[rank * most : (rank + 1) * most]) / _tokens(blocks)


def overlapping(blocks, rank, size):
    most = math.ceil(len(blocks) / size)
    return _losses(blocks[rank : rank + most]) / _tokens(blocks)


def breaks_without_blocks(blocks, rank, size):
    """Right in its weights, by way of a mean that is not there."""
    mine = blocks[rank::size]
    return _losses(mine) / _tokens(mine) * _tokens(mine) / _tokens(blocks)


def nothing_without_blocks(blocks, rank, size):
    if rank < len(blocks):
        return _losses(blocks[rank::size]) / _tokens(blocks)


def blocks_count_the_same(blocks, rank, size):
    return sum(sum(block) / len(block) for block in blocks[rank::size]) / len(blocks)


def first_takes_all(blocks, rank, size):
    return _losses(blocks) / _tokens(blocks) if rank == 0 else 0.0


def counted(need, limit=lambda card: 0.85 * card, start=1, end=1, none=0):
    """A function for exercise 20.3 that goes up from `start`, with a need and a limit of its own."""

    def cards(divided, own, gathered, card, most):
        for count in range(start, most + end):
            if need(divided, own, gathered, count) <= limit(card):
                return count
        return none

    return cards


def right_need(divided, own, gathered, count):
    return divided / count + own + gathered * (count > 1)


def doubling(divided, own, gathered, card, most):
    count = 1
    while right_need(divided, own, gathered, count) > 0.85 * card:
        count *= 2
        if count > most:
            return 0
    return count


def rounded_up(divided, own, gathered, card, most):
    room = 0.85 * card - own - gathered
    return math.ceil(divided / room) if room > 0 else 0


def not_rounded(divided, own, gathered, card, most):
    room = 0.85 * card - own - gathered
    return divided / room if room > 0 else 0


def largest(divided, own, gathered, card, most):
    return most


WRONG = {
    "ex20_1": [
        (0.8 * GRADIENTS, "the parts go round twice"),
        (GRADIENTS, "all gradients, once"),
        (2 * GRADIENTS, "for very many machines"),
        (8 * GRADIENTS, "what all five send together"),
        (4 * GRADIENTS, "to each of the others"),
        (2.5 * GRADIENTS, "changed places"),
        (1.6 * TRAINED / 1e6, "that counts values"),
        (1.6 * 4 * FROZEN / 1e6, "frozen values have no gradient"),
        (1.6 * 4 * (FROZEN + TRAINED) / 1e6, "frozen values have no gradient"),
        (3 * 1.6 * GRADIENTS, "only gradients travel"),
        (1.6 * GRADIENTS * 1e6 / 2**20, "that is in MiB"),
        (1.6 * GRADIENTS * 1e6, "that is in bytes"),
        (1.6 * GRADIENTS / 1e3, "that is in GB"),
        (50, "50 MB is not it"),
        ("28.2 MB", "a number is asked for"),
    ],
    "ex20_2": [
        (mean_of_means, "with blocks of 4, 4, 4, 4, 4 tokens for 2 processes, the sum is a mean of means"),
        (in_runs, "the sum is a mean of means"),
        (own_mean, "the mean of its own tokens"),
        (lambda blocks, rank, size: _losses(blocks[rank::size]), "nothing is divided"),
        (lambda blocks, rank, size: _losses(blocks[rank::size]) / len(blocks), "by the number of blocks"),
        (lambda blocks, rank, size: _losses(blocks[rank::size]) / size, "by the number of processes. It is tokens"),
        (lambda blocks, rank, size: _losses(blocks[rank::size]) / _tokens(blocks) / size, "summed, not averaged"),
        (blocks_count_the_same, "4, 4, 1 tokens for 2 processes, every block counts the same"),
        (lambda blocks, rank, size: _losses(blocks) / _tokens(blocks), "the loss of all blocks"),
        (lambda blocks, rank, size: _losses(blocks) / _tokens(blocks) / size, "not that of blocks of its own"),
        (left_over, "4, 4, 4 tokens for 2 processes, nobody takes block 4"),
        (overlapping, "block 1 is taken 2 times"),
        (lambda blocks, rank, size: _losses(blocks[rank:]) / _tokens(blocks), "block 1 is taken 2 times"),
        (first_takes_all, "not dealt out evenly: they take [4, 0]"),
        (breaks_without_blocks, "What does a process without blocks add?"),
        (nothing_without_blocks, "returns nothing yet: does it end with `return`? What does a process without"),
        (lambda blocks, rank, size: blocks[rank::size], "a number is asked for"),
        (lambda blocks, rank, size: 1.0, "the parts add up to 2"),
        (1.5, "a function is asked for"),
    ],
    "ex20_3": [
        (counted(right_need, limit=lambda card: card), "15% of each card is left free"),
        (counted(lambda *sizes: 1.15 * right_need(*sizes), limit=lambda card: card), "15% of the *card*"),
        (counted(lambda divided, own, gathered, count: divided / count + own), "what is gathered is there in full"),
        (
            counted(lambda divided, own, gathered, count: (divided + gathered) / count + own),
            "on every card",
        ),
        (counted(lambda divided, own, gathered, count: (divided + own) / count + gathered), "has for itself"),
        (counted(lambda divided, own, gathered, count: (divided + own + gathered) / count), "not all of it is divided"),
        (counted(lambda divided, own, gathered, count: divided / count + own + gathered), "nothing to gather"),
        (counted(right_need, start=2), "one card by itself"),
        (counted(right_need, end=0), "the last number counts"),
        (counted(right_need, end=100), "so many are not there"),
        (counted(right_need, none=None), "0 is asked for where no number is enough"),
        (counted(right_need, none=math.inf), "0 is asked for where no number is enough"),
        (counted(right_need, none=1), "No number is enough, so 0 is asked for"),
        (rounded_up, "nothing to gather"),
        (not_rounded, "cards come whole"),
        (doubling, "cards need not double"),
        (largest, "fewer are enough, too"),
        (lambda *sizes: 1, "then each needs 117 GB and may fill 68"),
        (lambda *sizes: 0, "there is a number that is enough"),
    ],
}
