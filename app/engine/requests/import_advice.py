"""Cures for failed imports, by the text of the error, with the form entry concerned."""

from __future__ import annotations

# A part of the words, the entry that they are about, and the cure.
_CURES = (
    ("are not on the disk", "pretrained", ""),
    ("cannot be made:", "arguments", "Check the arguments, by the names that its constructor has."),
    (".forward(", "inputs", "Give a shape for each argument that forward wants."),
    ("forward() ", "inputs", "Give a shape for each argument that forward wants."),
    ("__init__() ", "arguments", "Check the arguments, by the names that its constructor has."),
    ("required argument", "arguments", "Write them by their names."),
    ("required positional argument", "arguments", "Write them by their names."),
    ("unexpected keyword argument", "arguments", "Check the arguments, by the names that its constructor has."),
    ("does not take what arrives", "inputs", "Give a shape that it is made for."),
    ("does not accept its input", "inputs", "Give a shape that it is made for."),
    ("had not come to its end", "", "Choose a smaller model, or make the file do less when it is imported."),
    ("attempted relative import", "", "Import what lies beside the file by its name, without dots."),
    ("No module named", "", "Install what brings it where Tapedeck is installed, or put it beside the file."),
    ("EOFError", "", "Nobody can answer a file that is imported: let it ask nothing."),
    ("Torch not compiled with CUDA", "", "Make the model on the CPU; its device is chosen when it is trained."),
    ("would be another net", "", "Import a part of the model without that module, or write it with other operations."),
    ("values of the data", "", "Import a submodule that has no such step, or write the step with tensor operations."),
    ("cannot be followed", "", "Check the inputs, or import a smaller part of the model."),
)
_OPTIONS = {"arguments": """--args '{"name": value}'""", "inputs": "--input 1x3x32x32, once for each of them"}


def cure_of(words: str) -> tuple[str, str]:
    """Return the entry that an error is about, and the cure; both may be empty.

    >>> cure_of("net.py: ModuleNotFoundError: No module named 'einops'")[1]
    'Install what brings it where Tapedeck is installed, or put it beside the file.'
    """
    return next(((entry, cure) for part, entry, cure in _CURES if part in words), ("", ""))


def told(words: str) -> str:
    """Format an error with its cure and the command line option concerned."""
    entry, cure = cure_of(words)
    ended = words if words.endswith(".") or not cure else f"{words}."
    option = f" ({_OPTIONS[entry]})" if cure and entry in _OPTIONS else ""
    return f"{ended} {cure.removesuffix('.')}{option}." if cure else words
