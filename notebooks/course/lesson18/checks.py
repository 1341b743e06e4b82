"""Another task: balanced accuracy, the mean over the tokens that are no padding, and what frozen features save."""

from course.exercises import Quiz, Wrong, called, exercise, kind, number


@exercise(
    "ex18_1",
    1,
    "the balanced accuracy in percent",
    "Compute the share that is right in each class by itself, before you put the two together.",
    "In the first class 81 of 90 are right, which is 90%. What is it in the second?",
    "Balanced accuracy is the mean of the two shares, and each counts once, whatever the size of its class.",
)
def balanced_accuracy(answer: object) -> None:
    """Judge the balanced accuracy of a classifier of two classes of unequal size."""
    given = number(answer)
    if abs(given - 55) <= 0.01:
        return
    told = {
        83: "that is plain accuracy, in which the large class counts nine times as much as the small one.",
        0.55: "write it in percent.",
        110: "that is the sum over the classes; divide it by their number.",
        50: "that is what someone reaches who puts every text into the same class.",
        90: "that is the share of the first class alone.",
        20: "that is the share of the second class alone.",
        45: "that is the mean share that is wrong; what is right is asked for.",
    }
    for wrong, why in told.items():
        if abs(given - wrong) <= 0.01:
            raise Wrong(why)
    raise Wrong(f"{given:,.10g} is not the mean of 81 of 90 and 2 of 10.")


@exercise(
    "ex18_2",
    2,
    "shape and values, for rows of several lengths, one that is full, and padding that holds large numbers",
    "For one row it is `hidden[row, : lengths[row]].mean(0)`; a loop over the rows is good enough.",
    "`torch.stack([...])` makes one tensor of a list of rows.",
    "`torch.stack([states[:n].mean(0) for states, n in zip(hidden, lengths.tolist())])`",
)
def mean_state(answer: object) -> None:
    """Judge the mean of the hidden states of each text, without its padding."""
    import torch

    generator = torch.Generator().manual_seed(18)
    for sizes, columns in (([3, 5, 1], 5), ([2], 4), ([6, 6], 6)):
        hidden = torch.randn(len(sizes), columns, 4, generator=generator)
        lengths = torch.tensor(sizes)
        for row, size in enumerate(sizes):
            hidden[row, size:] = 100.0 + row
        before, counted = hidden.clone(), lengths.clone()
        given = called(answer, hidden, lengths)
        if not isinstance(given, torch.Tensor):
            raise Wrong(f"a tensor of shape {(len(sizes), 4)} is expected, and this is {kind(given)}.")
        if not torch.equal(hidden, before) or not torch.equal(lengths, counted):
            raise Wrong("the hidden states or lengths that were passed in are changed by it.")
        story = f"for rows of {', '.join(map(str, sizes))} tokens in {columns} columns"
        if tuple(given.shape) != (len(sizes), 4):
            raise Wrong(f"{story}: the shape is {tuple(given.shape)}, expected {(len(sizes), 4)}.")
        wanted = torch.stack([states[:size].mean(0) for states, size in zip(hidden, sizes, strict=True)])
        if torch.allclose(given.float(), wanted, atol=1e-4):
            continue
        _tell_which_mean(given.float(), hidden, sizes, story)


def _tell_which_mean(given, hidden, sizes: list[int], story: str) -> None:
    """Name the usual mistakes by what comes out of them."""
    import torch

    rows = list(zip(hidden, sizes, strict=True))
    usual = {
        "the padding is counted in the mean.": [states.mean(0) for states, _ in rows],
        "the sum is divided by the number of columns, and not by that of the tokens.": [
            states[:size].sum(0) / len(states) for states, size in rows
        ],
        "this is the sum over the tokens; divide it by their number.": [states[:size].sum(0) for states, size in rows],
        "this is the state of the last token alone.": [states[size - 1] for states, size in rows],
        "the last token of each text is left out.": [states[: max(1, size - 1)].mean(0) for states, size in rows],
    }
    for why, values in usual.items():
        if torch.allclose(given, torch.stack(values), atol=1e-4):
            raise Wrong(f"{story}: {why}")
    raise Wrong(f"{story}: the values are not the means of the first so many hidden states of each row.")


@exercise(
    "ex18_3",
    3,
    "the percentage of the arithmetic that remains, to a tenth of a percent",
    "Say that the forward pass over all texts costs 1. The backward pass of full fine-tuning then costs 2.",
    "Frozen features are the same in every epoch. How often do the texts have to pass through the model?",
    "Full fine-tuning costs 5 epochs times (1 + 2), and the features are computed once.",
)
def stored_features(answer: object) -> None:
    """Judge the share of the arithmetic that a head on stored features needs."""
    given = number(answer)
    if abs(given - 100 / 15) <= 0.06:
        return
    told = {
        1000 / 3: "the features would be computed anew in each of the 50 epochs; they never change, so store them.",
        100 / 3: "full fine-tuning passes over the texts five times, and not once.",
        20: "the backward pass of full fine-tuning is left out.",
        10: "the backward pass costs twice as much as the forward pass, and not as much.",
        1400 / 15: "that is what is saved; what remains is asked for.",
        1 / 15: "write it in percent.",
        15: "that is how many times as much full fine-tuning needs; the percentage that remains is asked for.",
        2: "that is what storing saves in the 50 epochs of the head; compare with full fine-tuning instead.",
    }
    for wrong, why in told.items():
        if abs(given - wrong) <= (0.06 if wrong > 1 else 0.001):
            raise Wrong(why)
    raise Wrong("with the forward pass over all texts as 1, full fine-tuning costs 3 in each of its 5 epochs.")


QUIZ = Quiz(
    "quiz18",
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
TASKS = (balanced_accuracy, mean_state, stored_features, QUIZ)
