# %% [markdown]
# # Solutions: 15 · The autopsy

# %%
import tlkit as tl

# %% [markdown]
# How many blocks does a ranking take? From one block of 32 tokens to the next, the
# difference between two strategies scatters with a standard deviation of 0.14 nats; that is about what our models
# show. Take the blocks as independent, and suppose that the mean of the difference over n blocks is 0.02 nats. Its
# interval at 95% is then 0.02 ± 1.96 · 0.14 / √n. How many blocks must there be, at least, for zero to lie outside?

# %%
answer = None
### BEGIN SOLUTION
import math

answer = math.ceil((1.96 * 0.14 / 0.02) ** 2)
### END SOLUTION
tl.check("ex15_1", answer)

# %% [markdown]
# Repair the fault of symptom 3, for a program that has nothing but names, as in a
# file of weights. Write a function that says of a tensor's name, such as `model.layers.7.mlp.up_proj.weight`, whether
# it belongs to the first `count` blocks. The names are those of Qwen2-0.5B, the embedding and the final norm among
# them. peft puts `base_model.model.` in front of each; the function has to cope with that, too.

# %%
import re


def in_first_blocks(name, count):
    """True for a tensor of the first `count` blocks, False for every other one."""
    ### BEGIN SOLUTION
    found = re.search(r"layers\.(\d+)\.", name)
    return found is not None and int(found[1]) < count
    ### END SOLUTION


tl.check("ex15_2", in_first_blocks)

# %% [markdown]
# Three figures are known before any weight has moved: the loss of the first
# training step (nats a token), the perplexity that the evaluation finds before training, on text of the same kind, and
# the number of tokens in the vocabulary. Write the diagnosis. Return
#
# - `"loading"` where the model knows nothing, because its weights never arrived;
# - `"evaluation"` where training is right and the evaluation measures something else;
# - `"sound"` where neither shows.
#
# Forgive a difference of one nat, as the lesson's guard does. And mind the two published baselines, 254,801 and
# 250,072: both are above the vocabulary, and their faults are not the same.

# %%
import math


def diagnose(first_loss, baseline, vocabulary):
    """One of the three words."""
    ### BEGIN SOLUTION
    if abs(first_loss - math.log(baseline)) > 1:
        return "evaluation"
    return "loading" if baseline > vocabulary else "sound"
    ### END SOLUTION


tl.check("ex15_3", diagnose)
