# %% [markdown]
# # Solutions: 18 · Scaling out

# %%
import course

# %% [markdown]
# Which stage do you choose? All is in fp32, with AdamW, and you are given
#
# - `parameters` and `trained`: how many parameters the model has, and how many of them are trained. A frozen one has
#   neither gradient nor averages;
# - `cards` and `card_gb`: how many cards, and the size of each in GB ($10^9$ bytes). Leave 15% of it free, for the
#   driver and for gaps between tensors;
# - `own`: GB for the activations of a card's own rows, the same on each.
#
# Return the first of `"DDP"`, `"ZeRO-1"`, `"ZeRO-2"` and `"ZeRO-3"` that fits, or `"none"`.


# %%
def plan(parameters, trained, cards, card_gb, own):
    """The name of the first stage that fits, or none."""
    ### BEGIN SOLUTION
    held = [8 * trained, 4 * trained, 4 * parameters]  # in the order of the stages
    for stage, name in enumerate(["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"]):
        sizes = [size / cards for size in held[:stage]] + held[stage:]
        if sum(sizes) / 1e9 + own <= 0.85 * card_gb:
            return name
    return "none"
    ### END SOLUTION


course.check("ex18_1", plan)
