# %% [markdown]
# # Solutions: 18 · Scaling out

# %%
import course

# %% [markdown]
# How many cards does FSDP need for a model? You are given, in GB,
#
# - `divided`: weights, gradients and optimizer state of the whole model, which the cards share;
# - `own`: activations and logits of a card's own rows, the same number on each;
# - `gathered`: what each card gathers from the others on top, if there is more than one card;
# - `card`: the size of a card. Leave 15% of it free, for the driver and for gaps between tensors.
#
# Return the smallest number of cards that is enough, up to `most`, or 0 if more are needed.


# %%
def enough_cards(divided, own, gathered, card, most):
    """The smallest number from 1 to `most`, or 0."""
    ### BEGIN SOLUTION
    for count in range(1, most + 1):
        need = divided / count + own + (gathered if count > 1 else 0)
        if need <= 0.85 * card:
            return count
    return 0
    ### END SOLUTION


course.check("ex18_1", enough_cards)
