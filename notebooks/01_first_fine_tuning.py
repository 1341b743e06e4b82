# %% [markdown] slideshow={"slide_type": "slide"}
# # 1 · What can this machine do?
#
# *What can this machine do, and did the weights load?*
#
# Somebody adapted a language model of half a billion values to text about the programming language Rust, in four ways,
# and published the results. In one of the runs the model became 83% better by the usual measure. In another one, with
# the same model and the same kind of text, it became more than 450 times worse. Both reports explain their numbers with
# confidence, and both are wrong, for reasons that could have been found in a minute.
#
# This course repeats the experiment with a model that is small enough for your machine, and this lesson does what comes
# first: it checks the machine, and it checks that the model really contains what it is supposed to contain.
#
# **You will be able to**
#
# - say what a device, a dtype, a parameter and a token are, and look at each of them in PyTorch;
# - estimate whether a model can be trained in the memory that you have;
# - check in three ways, in seconds, whether a model's weights were really loaded.
#
# **You need** some Python, and a rough idea of what a neural network is.
# About 38 minutes.

# %% slideshow={"slide_type": "subslide"}
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import course
import tlkit as tl
from course.lesson03.pictures import perplexity_ruler

profile = tl.setup()

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The course in five parts
#
# [Transfer learning](glossary.md#transfer-learning) means that we do not train a model from nothing, but take one that
# was trained on other text and go on training it with ours. The first training is called *pretraining*, the second one
# *fine-tuning* or *adaptation*. The course follows the questions in the order in which they come up when you do this
# yourself.
#
# | part | lessons | afterwards you can |
# | --- | --- | --- |
# | 1 · Look inside | 1 to 3 | load a model, follow a text through it, and measure how well it predicts |
# | 2 · Choose what to train | 4 to 11 | train all of a model or a part of it, with LoRA and others |
# | 3 · Make it fit | 12 and 13 | say where the memory goes, and train on a card that is too small |
# | 4 · Know what is true | 14 to 16 | compare methods so that the result holds, and find the fault in a report |
# | 5 · For real | 17 to 21 | do all this with a larger model, another task, and more than one card |
#
# Words that are new are explained where they first appear. The [glossary](glossary.md) has all of them in one place.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The experiment that we repeat
#
# The published experiment used the model Qwen2-0.5B. One program, written in Python, trained four variants of it; a
# second program, written in Rust, did the same. (In both, the *text* is about Rust.) Each variant trains a different
# part of the model. The reports measure [perplexity](glossary.md#perplexity), for which lower is better; [lesson
# 3](03_baseline.ipynb) explains it in detail.
#
# | trained, says the report | Python: before | Python: after | Rust: before | Rust: after |
# | --- | --- | --- | --- | --- |
# | everything | 254,801 | 116,362,380 | 387,789 | 303,045 |
# | all but the lower half of the layers | 254,801 | 152,236,852 | 387,789 | 64,249 |
# | all but the embeddings | 254,801 | 300,747,597 | 387,789 | 206,584 |
# | the last two layers and the head | 254,801 | 78,241,302 | 387,789 | 104,839 |
#
# One fact is enough to see that something is wrong. A language model predicts text in [tokens](glossary.md#token),
# which are pieces of words, and its *vocabulary* is the list of all tokens that it knows. A model that knows nothing
# can do no better than give each of them the same probability, and its perplexity is then equal to the size of the
# vocabulary.

# %%
published = tl.architecture("qwen2-0.5b")  # its sizes, without any weights
reported = {
    "Python, before": 254_801,
    "Python, best after": 78_241_302,
    "Rust, before": 387_789,
    "Rust, best after": 64_249,
}
perplexity_ruler(reported, published.vocab_size)

# %%
print(f"tokens in the vocabulary of Qwen2-0.5B: {published.vocab_size:,}")
course.claim(
    "Both baselines are worse than guessing: larger than the vocabulary",
    min(254_801, 387_789) > published.vocab_size,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A model that was pretrained on English is not worse than guessing when it reads ordinary English text. Even the best
# result of the Rust program, 64,249, is only 2.4 times better than a guess. In the Rust program the weights had not
# been loaded at all, and in the Python program the evaluation compared each prediction with the wrong token. [Lesson
# 16](16_autopsy.ipynb) takes all reports apart. Here it is enough to see that nobody checked before training, so the
# mistakes went into every number that followed. We check first.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The device
#
# A [device](glossary.md#device) is the processor that stores numbers and computes with them, together with its
# memory: the CPU, or a GPU if there is one. A GPU performs thousands of multiplications at the same time, so it
# trains a large model many times faster, but its memory is usually smaller than the CPU's and, on most machines,
# separate from it. PyTorch puts every tensor on one device, and will only compute with tensors that are on the same
# one.
#
# `tl.probe` looks for an NVIDIA, Apple or Intel GPU. It then multiplies two small matrices on it, because a GPU may be
# listed and still fail at its first computation, for example if PyTorch was built for another generation of cards. If
# there is no working GPU, it describes the CPU. Nothing in this course needs a GPU.

# %% tags=["nbval-ignore-output"]
device = tl.probe()
print(f"{device.kind}: {device.name}, {device.cores} cores")
print(
    f"memory: {device.free_memory / 1e9:.1f} GB free "
    f"of {device.total_memory / 1e9:.1f} GB"
)
print("arithmetic in bf16:", "native" if device.native_bf16 else "not native")
for note in device.notes:
    print("note:", note)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## Numbers and their types
#
# A tensor's [dtype](glossary.md#dtype) says how each of its numbers is stored. Weights usually have one of three types.
#
# - **fp32** uses 32 bits, which are 4 bytes. It is precise to about seven digits and is the safe choice.
# - **fp16** uses 16 bits. It keeps about three digits, and the largest number it can hold is 65,504.
# - **bf16** uses 16 bits too, but spends them differently: it reaches as far as fp32 and keeps only two to three
#   digits.

# %%
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    third, large = torch.tensor([1 / 3, 70_000.0]).to(dtype).tolist()
    print(f"{str(dtype):15} {dtype.itemsize} bytes: {third:.7f} {large:>9}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The two columns are what remains of 1/3 and of 70,000. In fp16 the large number becomes infinite, while bf16 keeps
# it approximately. This is why training in 16 bits today mostly means bf16: in fp16 a large gradient becomes infinite
# and can ruin the weights, and a tiny one becomes zero, while in bf16 both are only less precise. Half the bytes also
# mean half the memory.
#
# **Predict first.** Training needs more memory than the weights alone. With [AdamW](glossary.md#adamw), the usual
# method, it needs four numbers in fp32 for each weight: the weight itself, its gradient, and two running averages.
# How much is that for the model of the published experiment, which has half a billion weights? Will training it fit on
# a card of 8 GB?

# %%
needed = {}
for name in ("tiny", "qwen2-0.5b"):
    shapes = tl.meta_model(name)  # the model's shapes alone, which take no memory
    values = sum(weight.numel() for weight in shapes.parameters())
    needed[name] = 4 * 4 * values  # four numbers of 4 bytes each
    print(f"{name}: {values:,} weights, {needed[name] / 1e9:.2f} GB to train them all")

# %% [markdown] slideshow={"slide_type": "subslide"}
# It does not fit, although it comes close. A card that is sold as 8 GB has 8.6 GB, since its makers count in powers
# of two, so 0.7 GB are left. But the intermediate results of each step, the [activations](glossary.md#activation),
# need room as well. For a text of 512 tokens there are 512 × 151,936 scores of possible next tokens. With their
# gradients they take 0.6 GB, and every layer adds its own results. The published Rust program did run out of memory
# on such a card. [Lesson 9](09_memory.ipynb) explains where every byte goes.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The model, and what goes into it
#
# The bundled model is small, but it was really pretrained, on technical documentation of Python, PostgreSQL and SQLite.
# It has never seen a text about Rust. It has the architecture of Qwen2, like the published one, so it consists of the
# same parts in the same order, only fewer and smaller.

# %%
tiny = tl.load_model("tiny")
print(tiny)

# %% [markdown] slideshow={"slide_type": "subslide"}
# A model does not read letters. Its *tokenizer* first cuts the text into tokens and replaces each by its number in
# the vocabulary. Common words are one token; rare words are split into several. Here `database`, a word that the model
# has often read, is one token, and `borrows`, a word of Rust, is cut into pieces.

# %%
ids = tiny.tokenizer("The database function borrows a string.")["input_ids"]
print(" | ".join(tiny.tokenizer.decode([token]) for token in ids))
print(ids)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The numbers of the tokens select rows of a table, the *embedding*. These rows pass through eight *blocks*, which are
# layers of the same form, then through a *norm*, which brings them to a common scale, and finally through the *head*,
# which gives each of the 4,096 tokens a score for being the next one. [Lesson 2](02_inside_a_language_model.ipynb)
# opens the blocks.
#
# Each adjustable number in these parts is a [parameter](glossary.md#parameter), also called a weight or, as in the
# picture, a *value*. The parameters are stored in *tensors*, which are arrays such as one matrix of a block. Below
# each box is the number of its parameters that are trained. The course calls it the strategy *full* if all of them
# are, and then every box is filled. The arrow shows [backpropagation](glossary.md#backpropagation), that is, how far
# back the training signal has to travel: from the head down to the lowest part that is trained. You will see this
# picture again in each lesson that trains only a part.

# %%
tl.network_strip(tl.apply_strategy(tiny.model, "full"))

# %%
parts = dict(tiny.model.named_parameters())
total = sum(weights.numel() for weights in parts.values())
print(f"{len(parts)} tensors hold {total:,} parameters")
embedding = tiny.model.get_input_embeddings().weight
print("the embedding:", tuple(embedding.shape), f"= {embedding.numel():,}")

# %% [markdown] slideshow={"slide_type": "subslide"}
# The head shares its matrix with the embedding, which is called *tied*, so the picture does not count it again.
# Always count parameters and not tensors. One of the published reports says that a variant trains "3 of 291
# parameters", but the 3 are tensors, and they hold 272,270,208 parameters. Two of the three, the embedding and a head
# that was not tied to it, have a row for each of the 151,936 tokens. The embedding of our model is one tensor of 98
# and holds a fifth of all parameters.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Did the weights load? Compare with the file
#
# A program that builds a model first fills it with random numbers and then overwrites them with those of the file. The
# random numbers have the same types and shapes as the right ones, so neither the shape of a model nor the number of
# its parameters tells you whether the second step was taken.
#
# The most direct check is to open the file and compare every tensor. This file stores fp16 to save space and the model
# computes in fp32. The comparison can still demand equality, because every fp16 number is also an fp32 number.

# %%
saved = load_file(tl.BUNDLED / "model.safetensors")
same = [saved[name].float().equal(weights) for name, weights in parts.items()]
course.claim(f"All {len(same)} tensors are exactly what the file says", all(same))

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## The same in plain transformers
#
# Outside of this course you will load a model with `from_pretrained`, which takes the name of a model on the Hugging
# Face hub or a folder. `tl.load_model` is a thin wrapper around it. `dtype` is worth stating: without it, transformers
# 5 keeps the type of the file, and this model would compute in fp16.

# %%
plain = AutoModelForCausalLM.from_pretrained(tl.BUNDLED, dtype=torch.float32)
tokenizer = AutoTokenizer.from_pretrained(tl.BUNDLED)

# %% [markdown] slideshow={"slide_type": "subslide"}
# ## When no name fits
#
# **Predict first.** We copy the model's folder and write `net.` in front of the name of each tensor, as a program with
# other conventions might do. Now no name in the file fits the model. What will `from_pretrained` do: raise an error,
# return a model, or return nothing?

# %%
with tempfile.TemporaryDirectory() as folder:
    shutil.copytree(tl.BUNDLED, folder, dirs_exist_ok=True)
    renamed = {f"net.{name}": tensor for name, tensor in saved.items()}
    save_file(renamed, Path(folder) / "model.safetensors", metadata={"format": "pt"})
    broken, loading = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    try:
        tl.load_model(folder)
        refused = False
    except RuntimeError:
        refused = True

# %%
missing = loading["missing_keys"]
print(f"the report: {len(missing)} missing, for example {max(missing)}")
course.claim("tl.load_model reads that report, and refuses such a folder", refused)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The answer is a model, filled with random numbers, although the report names every parameter as missing. It runs, and
# it could even be trained. (There are 99 names for 98 tensors, because the report lists the tied head under a name of
# its own.)
#
# transformers goes on because there are good reasons to load only a part of a model, for example to put a new head on
# it. It writes a warning, which is easily overlooked in a long log (`tl.setup` switches such messages off, so you see
# none here). So the second check is to ask for the loading report with `output_loading_info=True`, and to stop if it
# lists missing names.
#
# The published Rust program made a mistake of the same kind. It loaded its file into a list of variables before the
# model had registered any variable in the list. The list was empty, so there was nothing to fill, and the call reported
# success. Exercise 1.3 asks you for a loader that cannot do this.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One number that reveals it
#
# The third check needs no file and also works for other people's models: let the model predict ordinary text, and
# look at its perplexity. It says how many equally likely tokens the model is, on average, choosing between. A
# perplexity of 4,096 is what uniform guessing among 4,096 tokens would give.
#
# **Predict first.** Where will the pretrained model be? And the one that failed to load: below 4,096, at it, or above?
# (A third model, which is given random weights on purpose, is scored for comparison.)

# %%
text = tl.load_corpus("rust").validation[:10]
random_weights = tl.load_model("tiny", random_init=True)
scores = {
    name: tl.perplexity(model, tokenizer, text).perplexity
    for name, model in {
        "pretrained": tiny.model,
        "failed load": broken,
        "random weights": random_weights.model,
    }.items()
}
vocabulary = tiny.model.config.vocab_size

# %%
perplexity_ruler(scores, vocabulary)

# %%
course.claim(
    "The failed load and random weights are within 10% of the vocabulary's size",
    all(
        abs(scores[n] / vocabulary - 1) < 0.1 for n in ("failed load", "random weights")
    ),
)
course.claim(
    "The pretrained model is far below, at less than a twentieth",
    scores["pretrained"] < vocabulary / 20,
)

# %% [markdown] slideshow={"slide_type": "subslide"}
# The failed load *is* a model with random weights, so it scores like one. It scores worse than guessing, because it
# prefers some tokens for no reason. How much worse depends on how its random numbers were drawn; the published one
# scored 2.6 times the size of its vocabulary. The pretrained model has never read about Rust, but it is far better
# than guessing, because it knows which words are common and how English sentences go.
#
# So if the text is in a language that a model was trained on, a baseline near or above the size of the vocabulary
# does not mean that the text is difficult. Either the weights did not load, or the evaluation scores the wrong thing.
#
# You can also see it in what the models write. The one that failed to load (printed as *random weights*, since that
# is what it has) and the pretrained one continue the same prompt:

# %%
written = {
    name: tl.generate(model, tokenizer, ["The result is"])[0]
    for name, model in {"random weights": broken, "pretrained": tiny.model}.items()
}

# %% tags=["nbval-ignore-output"]
for name, line in written.items():
    print(f"{name}: {line}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Key ideas
#
# - Training all of a model in fp32 with AdamW takes at least 16 bytes a parameter. Count parameters, not tensors.
# - A model that failed to load looks and runs like one that loaded. Compare it with its file, or read the loading
#   report.
# - A baseline at or above the size of the vocabulary points to a fault in the weights or in the evaluation.
#
# ## Further reading
#
# - Hugging Face, [Loading models](https://huggingface.co/docs/transformers/models) and
#   [safetensors](https://huggingface.co/docs/safetensors/index): what is in such a file.
# - Yang et al. 2024, [Qwen2 technical report](https://arxiv.org/abs/2407.10671): the model of the published experiment.
# - Kalamkar et al. 2019, [A study of bfloat16 for deep learning training](https://arxiv.org/abs/1905.12322).
# - Goldberg 1991, [What every computer scientist should know about floating-point
#   arithmetic](https://doi.org/10.1145/103162.103163).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Put your answer where it says *your code here*, and run the cell: `course.check` says what it looked at and, if the
# answer is not right yet, why. If you are stuck, its card has hints to unfold, and `course.hint("ex01_1", 1)` gives the
# first one, too. After *Restart Kernel* run the next cell first; then each exercise works by itself.

# %%
import course
import tlkit as tl

# %% [markdown]
# **Quiz.** `torch.cuda.is_available()` returns True. What do you know?
#
# - **a** Training will run on the GPU.
# - **b** The GPU has room for the model.
# - **c** PyTorch was built for CUDA and its driver reports a GPU. Nothing has been computed on it.
# - **d** Models that are loaded from now on lie on the GPU.

# %%
course.quiz("quiz01")

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 1.1** (first steps). A model of perplexity P gives the right token a probability of 1/P, on (geometric)
# average. A published Rust run began at a perplexity of 387,789, with a vocabulary of 151,936 tokens. By what factor is
# its average probability *smaller* than that of uniform guessing? Give it with at least two decimals.

# %%
answer = None
# your code here
course.check("ex01_1", answer)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 1.2** (apply it). The lesson compared all tensors with the file at once. If one of them differs, you want
# to know its name. Write a function that returns a list with the name of each parameter that is missing from the file
# or has other values there. `model` is any PyTorch model and `path` a safetensors file. As in the lesson, the file may
# store its values in 16 bits.

# %%
from safetensors import safe_open


def not_from_file(model, path):
    """The names of the parameters that did not come from the file."""
    # your code here


course.check("ex01_2", not_from_file)

# %% [markdown] slideshow={"slide_type": "subslide"}
# **Exercise 1.3** (think further). Why did the published Rust program train random weights? It loaded its file into a
# list of variables *before* the model had registered any variable in it. All variables in the list were filled (there
# were none), and the call reported success. Write a loader that cannot make this mistake. `variables` and `saved` are
# dictionaries from names to tensors. If each variable has a saved tensor of the same name and shape, and each saved
# tensor a variable, fill the variables *in place* and return how many there are. Otherwise raise a `ValueError`.


# %%
def load(variables, saved):
    """Fill all variables from the file, or refuse."""
    # your code here


course.check("ex01_3", load)

# %% [markdown]
# Next: [2 · Inside a language model](02_inside_a_language_model.ipynb)
