# %% [markdown]
# # Solutions: 11 · Your data

# %%
import course

# %% [markdown]
# Write `encode` for conversations of several turns, so that every answer of the assistant is learned with its end
# token, and nothing else is. The chat template may be any that leaves earlier messages as they are. As in `encode`,
# what is read and what is learned are tokenised one by one, and nothing follows the last end token.


# %%
def labelled(tokenizer, messages):
    """Tokens and labels, in which each answer is learned."""

    ### BEGIN SOLUTION
    def text(number, **options):
        return tokenizer.apply_chat_template(
            messages[:number], tokenize=False, **options
        )

    def tokens(text):
        return tokenizer(text, add_special_tokens=False).input_ids

    ids, labels, done = [], [], ""
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            prompt = text(number, add_generation_prompt=True)
            answer = text(number + 1)[len(prompt) :].rstrip()
            read, learned = tokens(prompt[len(done) :]), tokens(answer)
            ids += read + learned
            labels += [-100] * len(read) + learned
            done = prompt + answer
    return {"input_ids": ids, "labels": labels}
    ### END SOLUTION


course.check("ex11_1", labelled)
