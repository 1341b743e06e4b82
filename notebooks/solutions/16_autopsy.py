# %% [markdown]
# # Solutions: 16 · The autopsy

# %%
import course
import tlkit as tl

# %% [markdown]
# Put the five checks of the lesson into a program that audits reports. Here is a new one (it is invented), as a table of `key: number`:
#
# | key | number | |
# | --- | --- | --- |
# | `vocabulary` | 49,152 | tokens |
# | `first_loss` | 3.2 | nats, first step of training |
# | `baseline` | 27.1 | perplexity before training, on text of the same kind |
# | `parameters` | 134,515,008 | all parameters |
# | `parts` | [7,080,192, 576] | parameters of "the last two blocks, and the first norm of block 0" |
# | `trained` | 7,080,768 | parameters said to be trained |
# | `tokens` | 512 | of the test text |
# | `seeds` | 1 | |
# | `speedup` | 12.0 | times faster than full fine-tuning |
#
# Your function gets such a dictionary and returns the set of all complaints that apply. A complaint says that two
# numbers disagree, and the person who reads it has to find out why.
#
# - `"loading"`: neither the first loss nor the logarithm of the baseline is more than one nat below $\ln$(vocabulary);
# - `"evaluation"`: loading is fine, but the first loss and the logarithm of the baseline are more than one nat apart;
# - `"count"`: the parts do not add up to what was trained;
# - `"sample"`: fewer than 1,000 tokens, or fewer than 3 seeds;
# - `"speed"`: faster than symptom 5 allows, where the gradient also reached block 0. That is 1.5 for the arithmetic,
#   plus the ratio of the traffic, with 8 bytes for each parameter and 88 more for each trained one.


# %%
import math


def audit(report):
    """The set of complaints about a report; empty for a sound one."""
    ### BEGIN SOLUTION
    complaints = set()
    loss, baseline = report["first_loss"], math.log(report["baseline"])
    if min(loss, baseline) >= math.log(report["vocabulary"]) - 1:
        complaints.add("loading")
    elif abs(loss - baseline) > 1:
        complaints.add("evaluation")
    if sum(report["parts"]) != report["trained"]:
        complaints.add("count")
    if report["tokens"] < 1000 or report["seeds"] < 3:
        complaints.add("sample")
    everything = report["parameters"]
    full, step = (8 * everything + 88 * n for n in (everything, report["trained"]))
    if report["speedup"] > 1.5 + full / step:
        complaints.add("speed")
    return complaints
    ### END SOLUTION


course.check("ex16_1", audit)
