# %% [markdown]
# # Solutions: 16 · The autopsy

# %%
import course
import tlkit as tl

# %% [markdown]
# Write the program that audits a report, which is a dictionary, and returns the set of all complaints. Here is an invented report:
#
# ```python
# {"vocabulary": 49_152, "first_loss": 3.2, "baseline": 27.1, "parameters": 134_515_008, "trained": 7_080_768,
#  "parts": [7_080_192, 576],  # of "the last two blocks, and the first norm of block 0"
#  "tokens": 512, "seeds": 1, "speedup": 12.0}  # of the test text; of each strategy; over full fine-tuning
# ```
#
# - `"loading"`: neither the first loss nor the logarithm of the baseline is more than one nat below $\ln$(vocabulary);
# - `"evaluation"`: loading is fine, but these two are more than one nat apart;
# - `"count"`: the parts do not add up to what was trained;
# - `"sample"`: fewer than 1,000 tokens, or fewer than 3 seeds;
# - `"speed"`: more than 1.5, which arithmetic can save at most, plus the ratio of the traffic of symptom 5.
#
# Then try it on the four models above, and keep it for your next `trainer.train()`:
#
# ```python
# plan = {"parts": [2_411_712], "tokens": 1_000, "seeds": 3, "speedup": 1.5}  # all but the lower half
# {name: audit(numbers | plan) for name, numbers in own.items()}
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
    if report["speedup"] > 1.5 + full / step:
        complaints.add("speed")
    return complaints
    ### END SOLUTION


course.check("ex16_1", audit)
