"""What a lesson says about a result, held against the result."""


def claim(sentence: str, holds: object) -> None:
    """Print a sentence about a result where it is true, and stop the lesson where it is not.

    Args:
        sentence: what is claimed, as a reader would say it: "Rust perplexity fell by at least 25%".
        holds: whether it is so: a bool, or one that numpy, pandas or torch has computed (one value).

    Raises:
        AssertionError: with the sentence, where it does not hold.
        ValueError: for an array of several values, whose truth is not one answer.
    """
    if not bool(holds):
        raise AssertionError(f"does not hold here: {sentence}")
    print(f"✓ {sentence}")
