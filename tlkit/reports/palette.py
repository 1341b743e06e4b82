"""The colours that all pictures have in common, with no library behind them.

They are Okabe and Ito's, told apart by the colour-blind.
"""

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"]
INK, FAINT = "#222222", "#666666"
# What a part of a model does, the same in every picture.
TRAINED, ADAPTER, GRADIENT = COLOURS[0], COLOURS[4], COLOURS[1]
PASSED, SPARED = "#D6E6F2", "#F2F2F2"  # frozen, with and without backpropagation through it
# Kinds of bytes, from bottom to top: what is there all the time lies lowest. The numbers are places in `COLOURS`.
KINDS = {
    "weights": 0,
    "optimizer state": 2,
    "gradients": 1,
    "activations": 3,
    "logits and loss": 4,
    "temporary": 5,
}
