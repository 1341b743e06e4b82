# %% [markdown]
# # Solutions: 8 · The PEFT family

# %%
import course
import tlkit as tl

# %% [markdown]
# Is another method worth changing to? `lora` and `new` hold two methods' test losses in nats per token, with a row for
# each document and a column for each seed. Changing pays if it lowers the mean loss by more than `margin`. Compute the
# lesson's 95% interval of `new - lora`, uncorrected. Return `"switch"` if changing pays in all of it, `"stay"` if it pays
# nowhere in it, and else `"cannot tell"`.
#
# For `dora` below, a margin of 0 gives `"switch"`, 0.01 (1% of the perplexity) `"cannot tell"`, and 0.02 `"stay"`.

# %%
import pandas as pd
from scipy import stats


def decide(lora, new, margin):
    """Whether to change the method: "switch", "stay" or "cannot tell"."""
    ### BEGIN SOLUTION
    apart = new - lora
    squares = 0
    for means in (apart.mean(axis="columns"), apart.mean(axis="index")):
        t = stats.t.ppf(0.975, len(means) - 1)
        squares += (t * means.sem()) ** 2
    mean, half = apart.to_numpy().mean(), squares**0.5
    if mean + half < -margin:
        return "switch"
    return "stay" if mean - half > -margin else "cannot tell"
    ### END SOLUTION


record = pd.read_csv(tl.DATA / "comparisons/tiny/all/documents.csv", comment="#")
record["loss"] = record.nats / record.tokens
losses = record.pivot(index=["strategy", "document"], columns="seed", values="loss")
dora = losses.loc["lora"], losses.loc["dora"]
course.check("ex08_1", decide)
