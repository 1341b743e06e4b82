# %% [markdown]
# # Solutions: 16 · The autopsy

# %%
import course
import tlkit as tl

# %% [markdown]
# How many blocks does a ranking take? Suppose that the difference between two strategies varies from one block of 32
# tokens to the next with a standard deviation of 0.14 nats, that blocks are independent, and that the mean difference
# over n blocks is 0.02 nats. Its 95% interval is then 0.02 ± 1.96 · 0.14 / √n. How many blocks does it take, at least,
# until this interval excludes zero?

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
# Write a program that audits reports. Here is a new one (it is invented), as a table of `key: number`:
#
# | key | number | |
# | --- | --- | --- |
# | `vocabulary` | 49,152 | tokens |
# | `first_loss` | 3.2 | nats, first step of training |
# | `baseline` | 27.1 | perplexity before training, on text of the same kind |
# | `parameters` | 134,515,008 | all parameters |
# | `parts` | [7,080,192, 576] | parameters of "the last two blocks and the final norm" |
# | `trained` | 7,080,768 | parameters said to be trained |
# | `tokens` | 512 | of the test text |
# | `seeds` | 1 | |
# | `speedup` | 12.0 | times faster than full fine-tuning |
#
# Your function gets such a dictionary and returns the set of all complaints that apply:
#
# - `"evaluation"`: first loss and baseline are more than one nat apart;
# - `"loading"`: they agree, but the baseline is not below the vocabulary;
# - `"count"`: the parts do not add up to what was trained;
# - `"sample"`: fewer than 1,000 tokens, or fewer than 3 seeds;
# - `"speed"`: faster than traffic allows, as in symptom 5: 8 bytes for each parameter and 96 for each trained one.


# %%
import math


def audit(report):
    """The set of complaints about a report; empty for a sound one."""
    ### BEGIN SOLUTION
    complaints = set()
    if abs(report["first_loss"] - math.log(report["baseline"])) > 1:
        complaints.add("evaluation")
    elif report["baseline"] >= report["vocabulary"]:
        complaints.add("loading")
    if sum(report["parts"]) != report["trained"]:
        complaints.add("count")
    if report["tokens"] < 1000 or report["seeds"] < 3:
        complaints.add("sample")
    everything = report["parameters"]
    full, step = (8 * everything + 96 * n for n in (everything, report["trained"]))
    if report["speedup"] > full / step:
        complaints.add("speed")
    return complaints
    ### END SOLUTION


course.check("ex16_3", audit)
