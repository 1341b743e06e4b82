# %% [markdown]
# # Live demo
#
# Six panels for a room with a projector. `make demo` shows each on a screen of its own, with its question as the title;
# what stands below a question here is the presenter's note, which the page shows only when N is pressed. Everything runs
# on this machine.

# %% [markdown] tags=["panel"]
# ## Which earlier words does a word look at?
#
# Ask where the last token will look before you move the sliders. Head 2 of block 0 looks at the last few tokens, and
# words that are rare in general text, such as “borrow”, fall into pieces. Then choose the third text and go to block 7,
# head 0: the last “the” puts 91% of its weight on “file”, which followed “the name of the” before, and the bars expect
# “file” with 84%. Such an induction head copies what came after the same words earlier.

# %%
import course

course.inside_the_model()

# %% [markdown] tags=["panel"]
# ## How much of the model does each strategy train?
#
# Ask what happens to the head when the embedding is frozen. It is frozen, too, because both are the same matrix. Point
# at the pale box: with `last_layers` and with `freeze_embeddings` the gradient never reaches the embedding. With
# `last_layers` it still passes through all blocks, because their norms are trained. LoRA trains about 5% of the values
# here, and its gradient travels down to the first block, so it saves far more memory than time.

# %%
course.strategy_map()

# %% [markdown] tags=["panel"]
# ## Which strategy learns Rust faster?
#
# Collect bets, then press the space bar. Both start from the same weights and read the same text, each at the learning
# rate that was recorded as best for it. Then set one rate to ten times its value and ask what will happen: the run is
# given up and named as diverged when its loss is 1 nat above the untouched model's. The pale lines are the races
# before; one seed decides nothing, and lesson 15 takes five.

# %%
course.TrainingLab(2)

# %% [markdown] tags=["panel"]
# ## What would make it fit?
#
# Ask whether full fine-tuning of half a billion values fits a card of 8 GB. In fp32 no switch makes it fit, because
# weights, gradients and AdamW's averages alone take 16 bytes a value, which is 7.4 GiB. Let people choose a switch, and
# look at which colour shrinks: smaller micro-batches and checkpointing reduce activations, and the chunked loss reduces
# the logits. The space bar looks for the first way that fits, which takes some seconds.

# %%
course.memory_explorer()

# %% [markdown] tags=["panel"]
# ## Out of memory: what would you change first?
#
# The card has 48 MiB and the model 15 MiB of weights. Ask in which part of the step training will fail, then press
# the space bar: the first attempt takes some seconds, because each really fails or holds on a card that is played on the
# processor. Weights, gradients and AdamW's averages together need 62 MiB, so nothing that saves activations is enough.
# Only moving the averages, which are 31 MiB, to the host brings the step below the line.

# %%
course.ladder_player()

# %% [markdown] tags=["panel"]
# ## Prompt it, or tune it?
#
# Read the report aloud and let people say the four values before you point at the cards. The untouched model chats
# about the report. With three examples in its prompt it answers in the right form, and takes the values from the
# examples instead of the report. The tuned model copies most values; the kind, which has to be judged, it gets right in
# about seven of ten reports. The space bar goes to the next report.

# %%
course.three_ways()
