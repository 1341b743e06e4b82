# %% [markdown]
# # Solutions: 20 · Scaling out

# %%
import tlkit as tl

# %% [markdown]
# LoRA gives `qwen2-0.5b` 4,399,104 values to train, beside 494,032,768 that are
# frozen; all are in fp32. Five machines train it together with DDP, one process each. How many MB (of a million bytes)
# does each of them send in a step?

# %%
answer = None
### BEGIN SOLUTION
answer = 2 * (5 - 1) / 5 * 4_399_104 * 4 / 1e6
### END SOLUTION
tl.check("ex20_1", answer)

# %% [markdown]
# Make the parts add up. A batch is a list of
# blocks, and each block a list with the losses of its tokens; not all are equally long. Write what process `rank`
# (from 0) of `size` hands in. The blocks are dealt out, each to one process, and to none more than its share, rounded
# up. The *sum* over all processes is the loss of the batch, that is, the mean over all of its tokens. There may be
# fewer blocks than processes.


# %%
def part_of_the_loss(blocks, rank, size):
    """What this process adds to the loss of the batch."""
    ### BEGIN SOLUTION
    tokens = sum(len(block) for block in blocks)
    return sum(sum(block) for block in blocks[rank::size]) / tokens
    ### END SOLUTION


tl.check("ex20_2", part_of_the_loss)

# %% [markdown]
# How many cards does a model in parts need? You are given, in GB,
#
# - `divided`: weights, gradients and moments of the whole model, which the cards share;
# - `own`: what is made of text, on each card for itself;
# - `gathered`: what each card gathers from the others, on top, where there are any;
# - `card`: the size of a card. Leave 15% of it free, as the lesson does.
#
# Return the smallest number of cards that is enough. At most `most` are there; where even they are not enough, return
# 0. Then think: what would have to change, if no number is?


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


tl.check("ex20_3", enough_cards)
