"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""


def grouped(runs):
    found = {}
    for strategy, rate, split, score in runs:
        found.setdefault(strategy, []).append((score, rate, split))
    return found


def edge(tried, best):
    rates = [rate for _, rate, _ in tried]
    return best(tried)[1] in (min(rates), max(rates))


def finder(split=True, budget=True, at_edge=True, best=min, elsewhere=any):
    """A solution that lacks what is switched off."""

    def not_tuned(runs):
        by_strategy = grouped(runs)
        most = max(map(len, by_strategy.values()))
        return {
            strategy
            for strategy, tried in by_strategy.items()
            if (split and elsewhere(part != "validation" for *_, part in tried))
            or (budget and len(tried) < most)
            or (at_edge and edge(tried, best))
        }

    return not_tuned


def highest_only(runs):
    by_strategy = grouped(runs)
    most = max(map(len, by_strategy.values()))
    return {
        name
        for name, tried in by_strategy.items()
        if any(split != "validation" for *_, split in tried)
        or len(tried) < most
        or min(tried)[1] == max(rate for _, rate, _ in tried)
    }


def the_fair_ones(runs):
    return set(grouped(runs)) - finder()(runs)


def with_limit(decide):
    """The same mistake by someone who does keep to the limit on forgetting."""

    def decided(low, high, worthwhile, forgets, may_forget):
        found = decide(low, high, worthwhile)
        over = {"first": forgets[0] > may_forget, "second": forgets[1] > may_forget}
        return "too costly" if over.get(found) else found

    return decided


def by_either(low, high, worthwhile, forgets, may_forget):
    found = right_but_for_the_limit(low, high, worthwhile)
    return "too costly" if found in ("first", "second") and max(forgets) > may_forget else found


def before_the_interval(low, high, worthwhile, forgets, may_forget):
    return "too costly" if min(forgets) > 30 else right_but_for_the_limit(low, high, worthwhile)


def right_but_for_the_limit(low, high, worthwhile):
    if -worthwhile <= low and high <= worthwhile:
        return "equal"
    return "first" if high < 0 else "second" if low > 0 else "cannot tell"


@with_limit
def by_zero_alone(low, high, worthwhile):
    return "first" if high < 0 else "second" if low > 0 else "equal"


@with_limit
def without_equal(low, high, worthwhile):
    return "first" if high < 0 else "second" if low > 0 else "cannot tell"


@with_limit
def zero_first(low, high, worthwhile):
    if high < 0:
        return "first"
    if low > 0:
        return "second"
    return "equal" if -worthwhile < low and high < worthwhile else "cannot tell"


@with_limit
def turned_round(low, high, worthwhile):
    if -worthwhile < low and high < worthwhile:
        return "equal"
    return "second" if high < 0 else "first" if low > 0 else "cannot tell"


@with_limit
def by_the_middle(low, high, worthwhile):
    middle = (low + high) / 2
    if abs(middle) < worthwhile:
        return "equal"
    return "first" if middle < 0 else "second"


@with_limit
def only_beyond_the_band(low, high, worthwhile):
    if -worthwhile < low and high < worthwhile:
        return "equal"
    return "first" if high < -worthwhile else "second" if low > worthwhile else "cannot tell"


WRONG = {
    "ex21_1": [
        (100, "the error is only halved"),
        (50, "takes the root of the ratio"),
        (375, "how many more you need"),
        (6.25, "a smaller difference takes more documents"),
        (25 / 16, "a smaller difference takes more documents"),
        (16, "how many times as many"),
        (4000, "that is the whole text"),
        (200, "the smallest difference is 0.028"),
        (500, "fewer are, too"),
        ("400", "a number is asked for"),
    ],
    "ex21_2": [
        (finder(split=False), "full was tuned on the test split, and your function does not name full"),
        (finder(elsewhere=all), "one run of full, of three, was scored on the test split"),
        (finder(budget=False), "lora had three runs and full had four"),
        (finder(at_edge=False), "the best rate of lora is the highest of those tried"),
        (highest_only, "the best rate of full is the lowest of those tried"),
        (finder(best=max), "everything was done rightly, and your function also names"),
        (the_fair_ones, "everything was done rightly, and your function also names full"),
        (lambda runs: "full", "a set of names is asked for"),
        (lambda runs: {1}, "a set of names is asked for"),
    ],
    "ex21_3": [
        (by_zero_alone, "Not finding a difference does not show that there is none"),
        (without_equal, "The band says which differences do not matter"),
        (zero_first, "the difference is real, but the whole interval lies within the band"),
        (turned_round, "Lower is better"),
        (by_the_middle, "Not finding a difference"),
        (only_beyond_the_band, "It excludes zero, so there is something to tell"),
        (lambda *given: right_but_for_the_limit(*given[:3]), "is not recommended, however low its perplexity"),
        (by_either, "only the worse strategy forgets over 100%"),
        (before_the_interval, "Only what the better strategy forgets counts"),
        (lambda *given: "better", 'expected one of "equal"'),
    ],
}
