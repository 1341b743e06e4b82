"""Another task: balanced accuracy, the mean over the tokens that are no padding, and what frozen features save."""

import torch

from course.exercises import Quiz, function_exercise, number_exercise
from course.small import close_tensors, tensor

balanced_accuracy = number_exercise(
    "ex13_1",
    "the balanced accuracy in percent",
    "Compute the share that is right in each class by itself, before you put the two together.",
    "In the first class 81 of 90 are right, which is 90%. What is it in the second?",
    "Balanced accuracy is the mean of the two shares, and each counts once, whatever the size of its class.",
    right=55,
    mistakes={
        "that is plain accuracy, in which the large class counts nine times as much as the small one.": 83,
        "write it in percent.": 0.55,
        "that is the sum over the classes; divide it by their number.": 110,
        "that is what someone reaches who puts every text into the same class.": 50,
        "that is the share of the first class alone.": 90,
        "that is the share of the second class alone.": 20,
        "that is the mean share that is wrong; what is right is asked for.": 45,
    },
    within=1e-3,
)


def _rows():
    draw = torch.Generator().manual_seed(18)
    for sizes, columns in (([3, 5, 1], 5), ([2], 4), ([6, 6], 6)):
        hidden = torch.randn(len(sizes), columns, 4, generator=draw)
        for row, size in enumerate(sizes):
            hidden[row, size:] = 100.0 + row
        story = f"for rows of {', '.join(map(str, sizes))} tokens in {columns} columns"
        yield story, hidden, torch.tensor(sizes)


def _each(of_row):
    """A function of hidden states and lengths that makes one vector of each row."""
    return lambda hidden, lengths: torch.stack([of_row(h, n) for h, n in zip(hidden, lengths.tolist(), strict=True)])


mean_state = function_exercise(
    "ex13_2",
    "shape and values, for rows of several lengths, one that is full, and padding that holds large numbers",
    "For one row it is `hidden[row, : lengths[row]].mean(0)`; a loop over the rows is good enough.",
    "`torch.stack([...])` makes one tensor of a list of rows.",
    "`torch.stack([states[:n].mean(0) for states, n in zip(hidden, lengths.tolist())])`",
    right=_each(lambda states, size: states[:size].mean(0)),
    cases=_rows,
    mistakes={
        "the padding is counted in the mean.": _each(lambda states, size: states.mean(0)),
        "the sum is divided by the number of columns, and not by that of the tokens.": _each(
            lambda states, size: states[:size].sum(0) / len(states)
        ),
        "this is the sum over the tokens; divide it by their number.": _each(lambda states, size: states[:size].sum(0)),
        "this is the state of the last token alone.": _each(lambda states, size: states[size - 1]),
        "the last token of each text is left out.": _each(lambda states, size: states[: max(1, size - 1)].mean(0)),
    },
    read=lambda given, hidden, lengths: tensor(given, hidden[:, 0]),
    alike=close_tensors,
    keeps=True,
)
stored_features = number_exercise(
    "ex13_3",
    "the percentage of the arithmetic that remains, to a tenth of a percent",
    "Say that the forward pass over all texts costs 1. The backward pass of full fine-tuning then costs 2.",
    "Frozen features are the same in every epoch. How often do the texts have to pass through the model?",
    "Full fine-tuning costs 5 epochs times (1 + 2), and the features are computed once.",
    right=100 / 15,
    mistakes={
        "the features would be computed anew in each of the 50 epochs; they never change, so store them.": 1000 / 3,
        "full fine-tuning passes over the texts five times, and not once.": 100 / 3,
        "the backward pass of full fine-tuning is left out.": 20,
        "the backward pass costs twice as much as the forward pass, and not as much.": 10,
        "that is what is saved; what remains is asked for.": 1400 / 15,
        "write it in percent.": 1 / 15,
        "that is how many times as much full fine-tuning needs; the percentage that remains is asked for.": 15,
        "that is what storing saves in the 50 epochs of the head; compare with full fine-tuning instead.": 2,
    },
)


QUIZ = Quiz(
    "quiz13",
    "The rows of a batch are padded on the right, and a program reads the class from the last column of the hidden "
    "states, `hidden[:, -1]`. It runs without an error. What is wrong?",
    {
        "a": "Nothing: a causal model does not see the padding.",
        "b": "Every text gets the same class, because all rows end with the same token.",
        "c": "For all but the longest text the class is read off padding, so it depends on the other texts of the "
        "batch.",
        "d": "Only the gradients are wrong; the classes themselves are right.",
    },
    {
        "a": "no: the text's own tokens do not see the padding behind them, but the last column of a shorter row is "
        "padding itself.",
        "b": "no: the padding does see the text before it, so its hidden states differ from text to text.",
        "c": "yes: how much padding a row has depends on the longest text beside it. Read the state of the last token "
        "that is no padding.",
        "d": "no: the logits themselves come from the wrong hidden state.",
    },
    right="c",
)
