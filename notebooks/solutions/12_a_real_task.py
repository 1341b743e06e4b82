# %% [markdown]
# # Solutions: 12 · A real task

# %%
import course

# %% [markdown]
# Version and system are copied from the report, so code can see without a label that a value is wrong if it does not
# stand there. `answer` is a dictionary with the four fields. Return a list with the names of the fields (`"version"`,
# `"system"`) whose value does not stand in `report`, letter by letter. `null` needs no source. Beware of parts: `1.4`
# does *not* stand in a report that says `1.40.0`, `1.4.2` or `0.1.4`, but it does in "I use v1.4." at the end of a
# sentence.

# %%
import re


def unsupported(answer, report):
    """The copied fields whose value has no source in the report."""
    ### BEGIN SOLUTION
    missing = []
    for field in ("version", "system"):
        value = answer[field]
        pattern = rf"(?<!\d)(?<!\d\.){re.escape(value or '')}(?!\d|\.\d)"
        if value is not None and not re.search(pattern, report):
            missing.append(field)
    return missing
    ### END SOLUTION


course.check("ex12_1", unsupported)
