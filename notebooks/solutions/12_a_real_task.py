# %% [markdown]
# # Solutions: 12 · A real task

# %%
import course

# %% [markdown]
# Before a form goes into a database, check it. `answer` is a dictionary with the four fields. Version and system are
# copied from the report, so a value that does not stand there is wrong, and code can see it without a label. Return a
# list with the names of the fields (`"version"`, `"system"`) whose value does not stand in `report`, letter by letter.
# `null` needs no source. Beware of parts: `1.4` does *not* stand in a report that says `1.40.0`, `1.4.2` or `0.1.4`,
# but it does in "I use v1.4." at the end of a sentence. (Of the nine wrong values above this finds one, `Orcana`: the
# others are null or do stand in the report, so a person is still needed.)

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
