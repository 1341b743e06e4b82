# %% [markdown]
# # Solutions: 16 · The autopsy

# %%
import course
import tlkit as tl

# %% [markdown]
# Make `complaints` a program that audits a whole report and returns the set of all complaints. An invented report:
#
# ```python
# {"vocabulary": 49_152, "first_loss": 3.2, "baseline": 27.1,
#  "parameters": 162_826_560, "trained": 7_080_768,  # the embedding is not tied
#  "parts": [7_080_192, 576],  # "the last two blocks, and the first norm of block 0"
#  "tokens": 512, "seeds": 1,
#  "seconds": 0.3, "fixed": 0.03,  # a step, and its fixed costs
#  "bandwidth": 288e9}  # bytes a second
# ```
#
# - `"loading"`, `"evaluation"`, `"count"`: as in the lesson;
# - `"sample"`: fewer than 1,000 tokens, or fewer than 3 seeds;
# - `"speed"`: the seconds are more than twice, or less than half, what check 5 expects by the bytes of symptom 5.


# %%
import math


def audit(report):
    """The set of complaints about a report; empty for a sound one."""
    ### BEGIN SOLUTION
    found = set()
    losses = [report["first_loss"], math.log(report["baseline"])]
    if min(losses) >= math.log(report["vocabulary"]) - 1:
        found.add("loading")
    elif max(losses) - min(losses) > 1:
        found.add("evaluation")
    if sum(report["parts"]) != report["trained"]:
        found.add("count")
    if report["tokens"] < 1000 or report["seeds"] < 3:
        found.add("sample")
    traffic = 8 * report["parameters"] + 88 * report["trained"]
    expected = traffic / report["bandwidth"] + report["fixed"]
    if not expected / 2 <= report["seconds"] <= 2 * expected:
        found.add("speed")
    return found
    ### END SOLUTION


course.check("ex16_1", audit)
