# %% [markdown]
# # Solutions: 12 · A real task

# %%
import course

# %% [markdown]
# A prompt with an instruction and three examples has 450 tokens, and the tuned model needs 120 for the same report. A
# provider takes $0.10 for a million prompt tokens, for either model. Tuning costs two hours of a rented card at $3 an
# hour. After how many requests has it paid for itself?

# %%
answer = None
### BEGIN SOLUTION
answer = 2 * 3 / ((450 - 120) * 0.10 / 1e6)
### END SOLUTION
course.check("ex12_1", answer)

# %% [markdown]
# Write the check that stands between a model and a database. It gets the `text` that a model wrote and the `report`, and
# returns a list with the names of what is wrong: `"json"` alone if the text is no JSON object, otherwise every field that
# is missing, every field that nobody asked for, and every field whose value is not allowed. The crate is a string. Version
# and system are null, or a string that stands in the report letter by letter. The kind is one of the six. If nothing is
# wrong, the list is empty.


# %%
def problems(text, report):
    """The names of the fields that are wrong, or `["json"]`."""
    ### BEGIN SOLUTION
    import json

    fields = {"crate", "version", "system", "kind"}
    kinds = {"crash", "wrong result", "compile error", "slow"}
    kinds |= {"documentation", "feature request"}
    try:
        answer = json.loads(text)
    except json.JSONDecodeError:
        return ["json"]
    if not isinstance(answer, dict):
        return ["json"]
    wrong = fields ^ answer.keys()  # missing ones, and those that nobody asked for
    for field in ("version", "system"):
        value = answer.get(field)
        if value is not None and not (isinstance(value, str) and value in report):
            wrong.add(field)
    if not isinstance(answer.get("crate"), str):
        wrong.add("crate")
    if answer.get("kind") not in kinds:
        wrong.add("kind")
    return sorted(wrong)
    ### END SOLUTION


course.check("ex12_2", problems)
