# %% [markdown]
# # Solutions: 14 · Preferences

# %%
import course

# %% [markdown]
# A tool to take to your own pairs. `pairs` is a list of tuples `(prompt, chosen, rejected)`. Return a list in which the
# longer answer is chosen as often as it is rejected. Length is counted in words, and pairs whose answers are equally long
# all stay. Of the kind that there is too much of, drop the last ones. Keep the order.


# %%
def balanced(pairs):
    """Pairs in which the longer answer wins as often as it loses."""
    ### BEGIN SOLUTION
    signs = []
    for _, chosen, rejected in pairs:
        n, m = len(chosen.split()), len(rejected.split())
        signs.append((n > m) - (n < m))
    room = {1: min(signs.count(1), signs.count(-1)), 0: len(pairs)}
    room[-1] = room[1]
    kept = []
    for pair, sign in zip(pairs, signs, strict=True):
        if room[sign] > 0:
            kept.append(pair)
            room[sign] -= 1
    return kept
    ### END SOLUTION


course.check("ex14_1", balanced)
