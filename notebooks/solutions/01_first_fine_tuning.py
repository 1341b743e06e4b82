# %% [markdown]
# # Solutions: 1 · First fine-tuning

# %%
import course

# %% [markdown]
# `encode` counts from the right end, so it works only where the padding is on the left. Write the function for your own
# texts. It gets a tokenizer that pads on either side and may put a token before each text, and two lists, `prompts` and
# `answers` (each answer begins with a space). It returns the tokenized batch of prompts, answers and end-of-text
# tokens, with `labels`: the tokens of the answers and of their ends, and -100 elsewhere.


# %%
def labelled(tokenizer, prompts, answers):
    """A batch in which only the answers and their ends are labels."""
    ### BEGIN SOLUTION
    ends = [answer + tokenizer.eos_token for answer in answers]
    texts = [prompt + end for prompt, end in zip(prompts, ends, strict=True)]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    for row, mask, prompt in zip(labels, batch["attention_mask"], prompts, strict=True):
        first = mask.argmax()  # the first 1: behind the padding, if that is on the left
        row[first : first + len(tokenizer(prompt)["input_ids"])] = -100
    batch["labels"] = labels
    return batch
    ### END SOLUTION


course.check("ex01_1", labelled)
