# %% [markdown]
# # Solutions: 20 · Your own project

# %%
import course

# %% [markdown]
# Write the end of any such study. `gains` are those of `dear` over `cheap`, one for each test source. Return the winner
# by the rule (`dear`, `cheap` or None), and a sentence that names it or says "cannot tell". It gives the gain and both
# ends of its 95% interval $\pm\, t_{n-1}\, s / \sqrt n$, with two decimals. Without a winner, it also says how many
# sources would have decided, had the gain and $s$ been the same.

# %%
import numpy as np
from scipy import stats


def conclusion(gains, worthwhile, cheap, dear):
    """The winner or None, and a sentence for the report."""
    ### BEGIN SOLUTION
    gain, s, n = np.mean(gains), np.std(gains, ddof=1), len(gains)

    def half(n):
        return stats.t.ppf(0.975, n - 1) * s / n**0.5

    def winner(n):
        if gain >= worthwhile and gain - half(n) > 0:
            return dear
        return cheap if gain + half(n) < worthwhile else None

    says = f"{dear} gains {gain:.2f} ({gain - half(n):.2f} to {gain + half(n):.2f})"
    if winner(n):
        return winner(n), f"Take {winner(n)}: {says}."
    while winner(n) is None:
        n += 1
    return None, f"Cannot tell: {says}. With {n} sources this would decide."
    ### END SOLUTION


course.check("ex20_1", conclusion)
