"""What students answer instead, and a part of what they are told, where the judge has no table of mistakes."""

import json
import math


def balanced(pairs, size=lambda text: len(text.split()), last=False, equal=True, tight=0):
    """A solution of exercise 14.1 with a mistake in it."""
    signs = [(size(chosen) > size(rejected)) - (size(chosen) < size(rejected)) for _, chosen, rejected in pairs]
    limit = max(0, min(signs.count(1), signs.count(-1)) - tight)
    room, kept = {1: limit, -1: limit, 0: len(pairs) if equal else 0}, []
    rows = list(zip(pairs, signs, strict=True))
    for pair, sign in rows[::-1] if last else rows:
        if room[sign] > 0:
            kept.append(pair)
            room[sign] -= 1
    return kept[::-1] if last else kept


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
        (lambda train, test, n: len(test), "a list of positions is asked for"),
    ],
    "ex12_1": [
        (lambda answer, report: "version", "a list of names is asked for"),
        (lambda answer, report: [True], "the name of a field"),
    ],
    "ex13_1": [
        (lambda probabilities, labels, threshold: 0.5, "2 numbers are asked for"),
        (lambda probabilities, labels, threshold: (0.5, 0.1), "for 4 texts"),
    ],
    "ex14_1": [
        (lambda pairs: pairs, "the longer answer wins 2 times and loses 1"),
        (lambda pairs: balanced(pairs, size=len), "the longer one by words has fewer letters: 2 pairs can stay"),
        (lambda pairs: balanced(pairs, last=True), "the last pairs of a kind go"),
        (lambda pairs: balanced(pairs, equal=False), "pairs can stay"),
        (lambda pairs: balanced(pairs, tight=1), "2 pairs can stay, and 0 are left"),
        (lambda pairs: balanced(pairs)[::-1], "in another order"),
        (lambda pairs: [prompt for prompt, _, _ in pairs], "none of the pairs"),
        (lambda pairs: len(pairs), "expected a list"),
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
