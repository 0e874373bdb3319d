"""What to do about a graph break or a recompile: a sentence for each kind, or torch's own hint for a break."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.util.language import marked, tr

# The first whose phrase is in the kind of a break, or in torch's explanation of it.
CURES = (
    (
        "Data-dependent branching",
        marked(
            "Choose between values with torch.where, or between computations with torch.cond, instead of with a Python "
            "if."
        ),
    ),
    (
        "Data-dependent assertion",
        marked("Check outside forward, or with torch._check, instead of with assert."),
    ),
    (
        "Tensor.item",
        marked(
            "Keep the value in a tensor; if Python needs it, set torch._dynamo.config.capture_scalar_outputs."
        ),
    ),
    (
        "Tensor.tolist",
        marked("Keep the values in a tensor, and take the list outside forward."),
    ),
    (
        "Data dependent operator",
        marked(
            "Keep the value in a tensor; if Python needs it, set torch._dynamo.config.capture_scalar_outputs."
        ),
    ),
    (
        "Dynamic shape operator",
        marked(
            "Use what has a fixed size, such as torch.where or a mask that is multiplied, or set "
            "torch._dynamo.config.capture_dynamic_output_shape_ops."
        ),
    ),
    (
        "`print`",
        marked(
            "Remove the print, or add print to torch._dynamo.config.reorderable_logging_functions."
        ),
    ),
    ("logging.Logger", marked("Log outside forward.")),
    ("`_warnings.warn`", marked("Warn in the constructor, or outside forward.")),
    ("torch._dynamo.graph_break()", marked("Remove the call of graph_break.")),
    (
        "torch.compiler.disable",
        marked("Remove torch.compiler.disable, or call the function outside forward."),
    ),
    (
        "RNN, GRU, or LSTM",
        marked("Set torch._dynamo.config.allow_rnn, or leave the layer to Python."),
    ),
    (
        "Tensor.numpy",
        marked("Compute with torch instead of with NumPy."),
    ),
    ("numpy", marked("Compute with torch instead of with NumPy.")),
    (
        "Tensor.backward",
        marked("Call backward outside of what is compiled."),
    ),
    (
        "requires_grad_",
        marked("Set requires_grad before the model is called."),
    ),
    (
        "context manager",
        marked("Enter the context manager around the model, not in forward."),
    ),
    (
        "marked as skipped",
        marked(
            "Call it outside forward and pass its result as an input, or make it an operator with "
            "torch.library.custom_op."
        ),
    ),
    (
        "builtin operator",
        marked(
            "Replace it by an operation of torch, or call it outside forward and pass its result as an input."
        ),
    ),
    (
        "Observed exception",
        marked("Test for the case with an if instead of by catching an exception."),
    ),
    (
        "generator",
        marked("Return a list instead of yielding."),
    ),
    (
        "torch.jit",
        marked("Call the Python module in place of its TorchScript."),
    ),
    (
        "Custom __getattr",
        marked("Give the module plain attributes."),
    ),
    (
        "deepcopy",
        marked("Copy in the constructor, or clone the tensor."),
    ),
)
EXPLAINED = marked(
    "Move the line out of forward, or make it an operator with torch.library.custom_op."
)
# Hints of torch that say nothing to do.
_EMPTY = re.compile(
    "fundamental|Please report|may be supported|earlier graph break|Dynamo does not|It may be possible",
    re.IGNORECASE,
)


def cure(kind: str, explanation: str, hints: Sequence[str]) -> str:
    """Return what to do about a break in a sentence: ours for its kind, or torch's first hint that says something.

    >>> cure("Data-dependent branching", "", ())[:39]
    'Choose between values with torch.where,'
    """
    for phrase, sentence in CURES:
        if phrase in kind or phrase in explanation:
            return tr(sentence)
    for hint in hints:
        if not _EMPTY.search(hint):
            return f"{hint.split('. ')[0].removesuffix('.')}."
    return tr(EXPLAINED)


# The first whose phrase is in a guard.
RECOMPILE_CURES = (
    (
        "size mismatch",
        marked(
            "Mark the dimension with torch._dynamo.mark_dynamic before the first call, or pad to one size."
        ),
    ),
    (
        "stride mismatch",
        marked("Pass tensors of one memory layout: call contiguous() first."),
    ),
    (
        "dtype mismatch",
        marked(
            "Pass tensors of one dtype, or convert them outside of what is compiled."
        ),
    ),
    (
        "requires_grad",
        marked("Call it with requires_grad always set or always unset."),
    ),
    (
        "training",
        marked(
            "Once for train() and once for eval() is usual; do not change modes between steps."
        ),
    ),
)
UNCHANGED = marked(
    "Keep what the guard names the same from call to call, or keep it in a tensor: a Python value that changes is "
    "compiled again."
)


def recompile_cure(guard: str) -> str:
    """Return what to do about an assumption that failed.

    >>> recompile_cure("x: dtype mismatch.")[:26]
    'Pass tensors of one dtype,'
    """
    for phrase, sentence in RECOMPILE_CURES:
        if phrase in guard:
            return tr(sentence)
    return tr(UNCHANGED)
