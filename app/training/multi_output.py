"""Losses of several outputs. The exported `train.py` contains this code verbatim.

torch is imported at the top since the code runs alone in that script: import this module lazily.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from app.training.script_recipes import float_targets, mixed_loss


def named(output: Any, forms: Sequence[Mapping[Any, str]]) -> dict[str, Any]:
    """Return the network's outputs by name.

    Each of `forms` has those that are given together, in training or in evaluation: a name for each place of a tuple,
    or for each key of a dictionary.
    """
    outputs = (
        output
        if isinstance(output, dict)
        else dict(enumerate(output if isinstance(output, tuple) else (output,)))
    )
    for names in forms:
        if names.keys() == outputs.keys():
            return {names[key]: value for key, value in outputs.items()}
    raise ValueError(
        f"The network returned {', '.join(map(str, outputs))} instead of one of {list(map(list, forms))}."
    )


class SeveralLosses(nn.Module):
    """Weighted sum of the losses of several outputs.

    `rows` are the names of an output and of its target, the loss, its weight, the number of classes for float targets
    (0: class ids), and whether the last axis of the output must come second. An output that the net does not return, as
    it may in evaluation, is left out; one of weight 0 is measured alone. `parts` are the losses of the last batch by
    output. For mixup `others` are the partners of the samples, and `share` is the weight of the first. `portions` are
    additional weights of some outputs, where a batch is split over processes.
    """

    whole = True  # takes all outputs of the net

    def __init__(
        self,
        forms: Sequence[Mapping[Any, str]],
        rows: Sequence[tuple[str, str, nn.Module, float, int, bool]],
    ) -> None:
        super().__init__()
        self.forms, self.rows = forms, rows
        self.losses = nn.ModuleList([row[2] for row in rows])
        self.parts: dict[str, Tensor] = {}

    def forward(
        self,
        output: Any,
        labels: Any,
        others: Tensor | None = None,
        share: float = 1.0,
        portions: Mapping[str, Tensor | float] | None = None,
    ) -> Tensor:
        """Return Σ weight · portion · loss over the rows, a scalar. Raises ValueError if no output has a loss."""
        outputs = named(output, self.forms)
        total, self.parts = None, {}
        for name, target, loss, weight, classes, turned in self.rows:
            if name in outputs:
                target_labels = labels if isinstance(labels, Tensor) else labels[target]
                out = outputs[name].movedim(-1, 1) if turned else outputs[name]
                target_labels = (
                    float_targets(target_labels, classes, out)
                    if classes
                    else target_labels
                )
                value = (
                    loss(out, target_labels)
                    if others is None
                    else mixed_loss(loss, out, target_labels, others, share)
                )
                if portions is not None and name in portions:
                    value = portions[name] * value
                self.parts[name] = value.detach()
                if weight:
                    total = weight * value if total is None else total + weight * value
        if total is None:
            raise ValueError(
                f"The network returned {', '.join(outputs)}, and none of these has a loss."
            )
        return total
