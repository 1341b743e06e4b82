# %% [markdown]
# # Solutions: 16 · The autopsy

# %%
import course
import tlkit as tl

# %% [markdown]
# How many blocks does a ranking take? The difference between two strategies varies from one block of 32 tokens to the
# next, with a standard deviation of 0.14 nats, which is about what our models show. Suppose that blocks are independent
# and that the mean difference over n blocks is 0.02 nats. Its 95% interval is then 0.02 ± 1.96 · 0.14 / √n. How many
# blocks does it take, at least, until this interval excludes zero?

# %%
answer = None
### BEGIN SOLUTION
import math

answer = math.ceil((1.96 * 0.14 / 0.02) ** 2)
### END SOLUTION
course.check("ex16_1", answer)

# %% [markdown]
# Repair the fault of symptom 3 in a program that knows only the names of the tensors, as in a file of weights. Write a
# function that takes a name such as `model.layers.7.mlp.up_proj.weight` and returns whether the tensor belongs to the
# first `count` blocks. It is called with all names of Qwen2-0.5B, which include the embedding and the final norm. peft
# puts `base_model.model.` in front of each name, and your function must handle these as well.

# %%
import re


def in_first_blocks(name, count):
    """True for a tensor of the first `count` blocks, False for every other one."""
    ### BEGIN SOLUTION
    found = re.search(r"layers\.(\d+)\.", name)
    return found is not None and int(found[1]) < count
    ### END SOLUTION


course.check("ex16_2", in_first_blocks)

# %% [markdown]
# Three numbers are known before any weight has changed: the loss of the first training step (in nats per token), the
# perplexity that the evaluation measures before training on text of the same kind, and the number of tokens in the
# vocabulary. Write a function that makes the diagnosis from them. It returns
#
# - `"loading"` if the model knows nothing, because its weights were not loaded;
# - `"evaluation"` if training is correct and the evaluation measures something else;
# - `"sound"` if there is no sign of either.
#
# Allow a difference of one nat, as `tl.first_loss_warning` does. Consider the two published baselines, 254,801 and
# 250,072: both are above the vocabulary's size, but their faults are not the same.

# %%
import math


def diagnose(first_loss, baseline, vocabulary):
    """One of the three words."""
    ### BEGIN SOLUTION
    if abs(first_loss - math.log(baseline)) > 1:
        return "evaluation"
    return "loading" if baseline > vocabulary else "sound"
    ### END SOLUTION


course.check("ex16_3", diagnose)
