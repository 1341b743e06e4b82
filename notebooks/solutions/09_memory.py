# %% [markdown]
# # Solutions: 9 · Anatomy of a training step

# %%
import course
import tlkit as tl

# %% [markdown]
# Given a model of the Llama or Qwen2 kind and `rows` times `tokens`, return the bytes at the peak of this course's step
# (`tokens - 1` of each row), which trains all parameters in fp32 with fused AdamW. Only two moments can be the peak. In
# a tied model, `model.config.tie_word_embeddings` is True.


# %%
def peak_bytes(model, rows, tokens):
    """Bytes at the peak of a training step, by this lesson's formulas."""
    ### BEGIN SOLUTION
    c, N = model.config, model.num_parameters()
    d, a, V = c.hidden_size, c.num_attention_heads, c.vocab_size
    k = d // a * c.num_key_value_heads
    kept = c.num_hidden_layers * (8 * d + 2 * k + 4 * c.intermediate_size + a + 2)
    at_the_loss = 12 * N + 4 * rows * (tokens - 1) * (kept + 3 * V)
    copies = 2 if c.tie_word_embeddings else 0
    return max(at_the_loss, 16 * N + copies * 4 * V * d)
    ### END SOLUTION


course.check("ex09_1", peak_bytes)
