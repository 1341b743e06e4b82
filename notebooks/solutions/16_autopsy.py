# %% [markdown]
# # Solutions: 16 · The autopsy

# %%
import course
import tlkit as tl

# %% [markdown]
# Write the program that audits a report, which is a dictionary, and returns the set of all complaints. An invented report:
#
# ```python
# {"vocabulary": 49_152, "first_loss": 3.2, "baseline": 27.1,
#  "parameters": 162_826_560, "trained": 7_080_768,  # the embedding is not tied
#  "parts": [7_080_192, 576],  # "the last two blocks, and the first norm of block 0"
#  "bottom": True,  # the backward pass goes down to block 0
#  "tokens": 512, "seeds": 1, "speedup": 12.0}  # over full fine-tuning
# ```
#
# - `"loading"`: neither the first loss nor the logarithm of the baseline is more than one nat below $\ln$(vocabulary);
# - `"evaluation"`: loading is fine, but these two are more than one nat apart;
# - `"count"`: the parts do not add up to what was trained;
# - `"sample"`: fewer than 1,000 tokens, or fewer than 3 seeds;
# - `"speed"`: `bottom`, and more than 1.5 plus the ratio of the traffic of symptom 5 (no tied embedding).
#
# Then try it on the four models above; only `sound` gets an empty set.
#
# ```python
# plan = {"parts": [812_544], "tokens": held_out.numel(), "seeds": 3, "bottom": False, "speedup": 1.0}
# {name: audit(numbers | plan) for name, numbers in own.items()}  # nothing is timed yet
# ```


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
    if report["bottom"] and report["speedup"] > 1.5 + full / step:
        complaints.add("speed")
    return complaints
    ### END SOLUTION


course.check("ex16_1", audit)
