"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import math
import re


def published_fault(name, count):
    return any(f"layers.{number}" in name for number in range(count))


def as_text(name, count):
    found = re.search(r"layers\.(\d+)\.", name)
    return found is not None and found[1] < str(count)


def one_too_many(name, count):
    found = re.search(r"layers\.(\d+)\.", name)
    return found is not None and int(found[1]) <= count


def counted_from_one(name, count):
    return any(f"layers.{number}." in name for number in range(1, count + 1))


def the_others(name, count):
    found = re.search(r"layers\.(\d+)\.", name)
    return found is not None and int(found[1]) >= count


def without_the_rest(name, count):
    return int(re.search(r"layers\.(\d+)\.", name)[1]) < count


def also_the_embedding(name, count):
    return "embed" in name or any(f"layers.{number}." in name for number in range(count))


def one_digit(name, count):
    found = re.search(r"layers\.(\d)", name)
    return found is not None and int(found[1]) < count


def at_the_start(name, count):
    return any(name.startswith(f"model.layers.{number}.") for number in range(count))


def weights_alone(name, count):
    return name.endswith("proj.weight") and any(f"layers.{number}." in name for number in range(count))


def vocabulary_first(loss, baseline, vocabulary):
    if baseline > vocabulary:
        return "loading"
    return "evaluation" if abs(loss - math.log(baseline)) > 1 else "sound"


def vocabulary_alone(loss, baseline, vocabulary):
    if baseline <= vocabulary:
        return "sound"
    return "evaluation" if math.log(baseline) - loss > 1 else "loading"


def one_direction(loss, baseline, vocabulary):
    if math.log(baseline) - loss > 1:
        return "evaluation"
    return "loading" if baseline > vocabulary else "sound"


def without_logarithm(loss, baseline, vocabulary):
    if abs(baseline - loss) > 1:
        return "evaluation"
    return "loading" if baseline > vocabulary else "sound"


def as_perplexities(loss, baseline, vocabulary):
    if abs(math.exp(loss) - baseline) > 1:
        return "evaluation"
    return "loading" if baseline > vocabulary else "sound"


def no_vocabulary(loss, baseline, vocabulary):
    return "evaluation" if abs(loss - math.log(baseline)) > 1 else "sound"


WRONG = {
    "ex15_1": [
        (188.24, "no part of a block"),
        (188, "still holds zero, though barely"),
        (753, "to *each* side"),
        (6048, "that looks like tokens"),
        (14, "the root of it"),
        (49, "as large as its own standard error"),
        (197, "takes 2 for 1.96"),
        (100, "with 100 blocks the interval still holds zero"),
        (1000, "fewer are, too"),
        ("189", "a number is asked for"),
    ],
    "ex15_2": [
        (published_fault, "also the beginning of others"),
        (as_text, "compares numbers as text"),
        (one_too_many, "off by one"),
        (counted_from_one, "off by one"),
        (without_the_rest, "for the name model.embed_tokens.weight, your function stopped"),
        (also_the_embedding, "what is in no block"),
        (one_digit, "also the beginning of others"),
        (at_the_start, "more in front"),
        (weights_alone, "in part"),
        (the_others, "takes all the others"),
        (lambda name, count: re.search(r"layers\.(\d+)\.", name)[1] if "layers" in name else "", "True or False"),
    ],
    "ex15_3": [
        (vocabulary_first, "these were not"),
        (vocabulary_alone, "may still be far from what training says"),
        (one_direction, "far better than training"),
        (without_logarithm, "a loss is in nats"),
        (as_perplexities, "the two cannot be compared"),
        (no_vocabulary, "a model that knows nothing"),
        (lambda loss, baseline, vocabulary: loss > 1, 'expected "sound"'),
    ],
}
