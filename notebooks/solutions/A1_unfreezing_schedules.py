# %% [markdown]
# # Solutions: A1 · Unfreezing schedules

# %%
import course

# %% [markdown]
# Write AdamW's parameter groups for discriminative rates in any model of the Llama family. The final norm gets `rate`,
# and so does `model.lm_head` if it is not tied. Each block below, and last the embedding, gets the rate of the part
# above it times `factor`. Every parameter must be in exactly one group. Return a list of dicts with `params` and `lr`.


# %%
def groups(model, rate, factor):
    """AdamW's groups, with rates that fall from the top of the model to the bottom."""
    ### BEGIN SOLUTION
    body, head = model.model, model.lm_head
    parts = [body.norm, *reversed(body.layers), body.embed_tokens]
    found = [
        {"params": list(part.parameters()), "lr": rate * factor**n}
        for n, part in enumerate(parts)
    ]
    if head.weight is not body.embed_tokens.weight:
        found[0]["params"].append(head.weight)
    return found
    ### END SOLUTION


course.check("exA1_1", groups)
