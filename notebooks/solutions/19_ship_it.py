# %% [markdown]
# # Solutions: 19 · Ship it

# %%
import course

# %% [markdown]
# A model that reads support tickets answers with JSON, for example `{"crate": "tokio", "version": "1.40.0", "system":
# null, "kind": "slow"}`. Write the parser that stands between the model and your program. It gets the text of an answer
# and a list of the allowed kinds. Other text may stand before and behind the JSON object, but that text contains no
# braces. Return a dict with exactly these four keys. Return an empty dict if
#
# - there is no valid JSON object, or one of the four keys is missing;
# - the kind is not one of those allowed;
# - the crate is not a string, or one of version and system is neither a string nor null.

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


course.check("ex19_1", read_ticket)
