# %% [markdown]
# # Solutions: 19 · Ship it

# %%
import course

# %% [markdown]
# You want to serve a model of 1.5 billion parameters with NF4 weights. Of these, 0.2 billion belong to the embedding and
# stay in bf16. All others take 4 bits each, and each block of 64 of them has a scale in fp32. How many GB (10^9 bytes)
# do weights and scales take?

# %%
answer = None
### BEGIN SOLUTION
packed = 1.5 - 0.2
answer = 0.2 * 2 + packed * 4 / 8 + packed / 64 * 4
### END SOLUTION
course.check("ex19_1", answer)

# %% [markdown]
# The ticket model of lesson 12 answers with JSON, for example `{"crate": "tokio", "version": "1.40.0", "system": null,
# "kind": "slow"}`. Write the parser that stands between the model and your program. It gets the text of an answer and
# the set of allowed kinds. Other text may stand before and behind the JSON object, but not between braces. Return a
# dict with exactly the four keys. Return an empty dict if there is no valid object, a key is missing, the kind is not
# allowed, the crate is not a string, or one of version and system is neither a string nor null.

# %%
import json


def read_ticket(text, kinds):
    """The four fields of a ticket, or an empty dict."""
    ### BEGIN SOLUTION
    start, end = text.find("{"), text.rfind("}")
    try:
        ticket = json.loads(text[start : end + 1])
        ticket = {key: ticket[key] for key in ("crate", "version", "system", "kind")}
    except (ValueError, KeyError):
        return {}
    optional = (ticket["version"], ticket["system"])
    if not isinstance(ticket["crate"], str) or ticket["kind"] not in kinds:
        return {}
    if not all(field is None or isinstance(field, str) for field in optional):
        return {}
    return ticket
    ### END SOLUTION


course.check("ex19_2", read_ticket)
