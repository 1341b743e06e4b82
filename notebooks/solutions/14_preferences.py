# %% [markdown]
# # Solutions: 14 · Preferences

# %%
import course

# %% [markdown]
# To keep chosen answers from becoming less likely, people add the SFT loss to that of DPO (in TRL by
# `loss_type=["sigmoid", "sft"]`). Write this sum. `before` and `after` are log-probabilities under the reference and
# under the model in training, of shape (2, pairs): chosen answers, then rejected ones. `tokens` says how many tokens
# each chosen answer has. Return the DPO loss plus `weight` times the SFT loss, which is the mean over all tokens of the
# chosen answers, as in `answer_loss`.

# %%
from torch.nn.functional import logsigmoid


def dpo_and_sft(before, after, tokens, beta, weight):
    """DPO plus SFT on the chosen answers, from log-probabilities."""
    ### BEGIN SOLUTION
    won, lost = after - before
    dpo = -logsigmoid(beta * (won - lost)).mean()
    sft = -after[0].sum() / tokens.sum()
    return dpo + weight * sft
    ### END SOLUTION


course.check("ex14_1", dpo_and_sft)
