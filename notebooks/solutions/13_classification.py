# %% [markdown]
# # Solutions: 13 · Classification

# %%
import course

# %% [markdown]
# A help desk lets a classifier decide only if it is sure, and hands the other tickets to a person. Write a function
# that says what this would be worth. It gets `probabilities`, a tensor of shape (texts, classes), the true classes
# `labels`, a tensor of shape (texts,), and a `threshold`. The classifier decides a text if its largest probability is
# at least the threshold. Return two numbers: the share of the texts that it decides, and the share of these that it
# gets right. At least one text is decided.


# %%
def decided(probabilities, labels, threshold):
    """The share of texts that are decided, and the accuracy on them."""
    ### BEGIN SOLUTION
    values, classes = probabilities.max(1)
    sure = values >= threshold
    return sure.float().mean().item(), (classes == labels)[sure].float().mean().item()
    ### END SOLUTION


course.check("ex13_1", decided)
