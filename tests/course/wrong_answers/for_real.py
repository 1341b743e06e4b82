"""What students answer instead, and a part of what they are told, where the judge has no table of mistakes."""

import json
import math

PAD = -100


def _by_token(tokens, only_read, length):
    """Padding masked by its token, which is the end token too."""
    return [PAD if place < only_read or token == tokens[-1] else token for place, token in enumerate(tokens)]


def _shifted(tokens, only_read, length):
    learned = [*tokens[only_read + 1 : length], tokens[length - 1]]
    return [PAD] * only_read + learned + [PAD] * (len(tokens) - length)


def _too_short(tokens, only_read, length):
    return [PAD] * only_read + tokens[only_read:length]


def _one_more(tokens, only_read, length):
    return [PAD] * only_read + tokens[only_read : length + 1] + [PAD] * max(0, len(tokens) - length - 1)


def counted(need, limit=lambda card: 0.85 * card, start=1, end=1, none=0):
    """A function for exercise 18.1 that goes up from `start`, with a need and a limit of its own."""

    def cards(divided, own, gathered, card, most):
        for count in range(start, most + end):
            if need(divided, own, gathered, count) <= limit(card):
                return count
        return none

    return cards


def right_need(divided, own, gathered, count):
    return divided / count + own + gathered * (count > 1)


def not_rounded(divided, own, gathered, card, most):
    room = 0.85 * card - own - gathered
    return divided / room if room > 0 else 0


def _whole_text(text, kinds):
    """A ticket only where nothing stands around it."""
    try:
        return json.loads(text)
    except ValueError:
        return {}


def _never_null(text, kinds):
    ticket = _unguarded(text, kinds)
    return ticket if all(ticket.values()) else {}


def _unguarded(text, kinds):
    return json.loads(text[text.find("{") : text.rfind("}") + 1])


WRONG = {
    "ex11_1": [
        (lambda train, test, n: [text for text in test if text in train], "there is something else in the list"),
        (lambda train, test, n: len(test), "a list of places is asked for"),
    ],
    "ex12_1": [
        (lambda options: max(options), "a place, counted from 0"),
        (lambda options: 0, "another option"),
    ],
    "ex13_1": [
        (lambda probabilities, labels, threshold: 0.5, "2 numbers are asked for"),
        (lambda probabilities, labels, threshold: (0.5, 0.1), "for 4 texts"),
    ],
    "ex14_1": [
        (_by_token, "the end token of the answer has no label"),
        (_shifted, "shifted by one"),
        (_too_short, "one for each token"),
        (_one_more, "padding has labels"),
        (lambda tokens, only_read, length: list(tokens), "the question has labels"),
        (lambda tokens, only_read, length: [PAD] * len(tokens), "has no label"),
    ],
    "ex18_1": [
        (counted(right_need, none=math.inf), "0 is asked for where no number is enough"),
        (not_rounded, "cards come whole"),
    ],
    "ex19_1": [
        (_whole_text, "for JSON with text around it, your function returns {}"),
        (_never_null, "for a field that is null, your function returns {}"),
        (_unguarded, "your function stopped"),
        (lambda text, kinds: text, "a dict is asked for"),
    ],
    "ex20_1": [(lambda pilot, reach: 5.5, "the next whole one is asked for")],
}
