"""Charts of a model's parts: what is trained, where gradients arrive, what 4 bits do, how much arithmetic a step is."""

from tlkit.evidence.flops import StepFlops
from tlkit.reports.figure import (
    COLOURS,
    INK,
    Chart,
    described,
    headline,
    height_for,
    new_figure,
)
from tlkit.reports.labels import beside_rows


@described
def flops_chart(steps: dict[str, StepFlops]) -> Chart:
    """Arithmetic of a training step by strategy: forward and backward pass, in billions of operations.

    Args:
        steps: by strategy what `count_flops` returned.
    """
    figure, axes = new_figure(height_for(len(steps)))
    names, forward = list(steps), [step.forward / 1e9 for step in steps.values()]
    backward = [step.backward / 1e9 for step in steps.values()]
    axes.barh(names, forward, color=COLOURS[5], edgecolor=INK, label="forward pass")
    axes.barh(names, backward, left=forward, color=COLOURS[4], edgecolor=INK, hatch="//", label="backward pass")
    axes.set_xlabel("billion floating-point operations in a training step")
    axes.invert_yaxis()
    total = {name: step.forward + step.backward for name, step in steps.items()}
    most, *fewer = sorted(total, key=total.get, reverse=True)
    beside_rows(
        axes,
        range(len(steps)),
        [
            f"{value / 1e9:.3g}" + f" ({100 * value / total[most]:.0f}%)" * (name != most)
            for name, value in total.items()
        ],
    )
    figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    if fewer:
        least, *others = (f"{100 * total[name] / total[most]:.0f}%" for name in fewer[::-1])
        said = f"{fewer[-1]} needs {least} of the arithmetic of {most}"
        if len(others) == 1:
            said = f"Of the arithmetic of {most}, {fewer[-1]} needs {least} and {fewer[0]} {others[0]}"
        headline(figure, said)
    else:
        headline(
            figure, f"The backward pass is {backward[0] / forward[0]:.2g} times the arithmetic of the forward pass"
        )
    return figure
