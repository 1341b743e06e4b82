# %% [markdown]
# # Solutions: 13 · Classification

# %%
import course

# %% [markdown]
# Write the function that chooses the threshold. It gets two numpy arrays of shape (texts,): the `largest` probability
# of each text, and whether its class is `right`. Try each value of `largest` as a threshold: a text is decided if its
# own is at least as high. Return the lowest at which at least the share `wanted` of the decided texts is right, even if
# a higher one misses it.
#
# After the lesson's cells, `lowest_threshold(combined.max(1), hits(combined, labels), 0.65)` finds 0.403, and decides
# 63.3%. For counting alone it finds 0.403 and decides 65.0%.


# %%
def lowest_threshold(largest, right, wanted):
    """The lowest threshold at which the wanted share of decided texts is right."""
    ### BEGIN SOLUTION
    for threshold in sorted(largest):
        if right[largest >= threshold].mean() >= wanted:
            return threshold
    ### END SOLUTION


course.check("ex13_1", lowest_threshold)
