"""A picture of the labels that the Python report's evaluation used."""

from matplotlib.patches import Rectangle

from course.drawing import GRADIENT, PASSED, SPARED, TRAINED
from tlkit.reports.figure import FAINT, INK, Chart, described, headline, new_figure


@described
def label_shift_scheme(tokens: list[str]) -> Chart:
    """What the model is asked to predict at each token: in training, and where labels are shifted twice.

    Args:
        tokens: of a text, at least 3 and at most 10.
    """
    figure, axes = new_figure(2.7)
    axes.axis("off")
    axes.set_xlim(-2.6, len(tokens))
    axes.set_ylim(-0.1, 3.05)
    rows = {
        "input": (0, SPARED),
        "to predict,\nlabels shifted once": (1, TRAINED),
        "to predict,\nlabels shifted twice": (2, GRADIENT),
    }
    for name, (shift, shade) in rows.items():
        base = 2 - shift
        axes.text(-0.15, base + 0.4, name, ha="right", va="center", fontsize="small", color=INK)
        for place in range(len(tokens)):
            text = tokens[place + shift] if place + shift < len(tokens) else ""
            # A place without a token stays an outline: nothing is scored there.
            face, ink = (shade, INK if shade == SPARED else "white") if text else ("none", FAINT)
            edge = INK if text else PASSED
            axes.add_patch(Rectangle((place + 0.03, base), 0.94, 0.8, facecolor=face, edgecolor=edge))
            axes.text(place + 0.5, base + 0.4, text, ha="center", va="center", fontsize="small", color=ink)
    figure.words = (f"after {tokens[0]!r} the token {tokens[1]!r} is right, and shifted twice {tokens[2]!r} is asked",)
    headline(
        figure, f"After {tokens[0].strip()!r} comes {tokens[1].strip()!r}; the report asked for the one after that"
    )
    return figure
