"""Cures for failed imports, by the code of the error, with the form entry concerned."""

from __future__ import annotations

from app.engine.requests.import_model import ModelImportError

_NAMES = "Check the argument names against its constructor."

# By the code of a refusal: the entry that it is about, and the cure.
_CURES = {
    "not_downloaded": ("pretrained", ""),
    "constructor": ("arguments", _NAMES),
    "arguments": ("arguments", "Pass them by keyword."),
    "inputs": ("inputs", "Enter one shape for each argument of forward."),
    "input_not_accepted": ("inputs", "Enter a shape that the model supports."),
    "timeout": (
        "",
        "Choose a smaller model, or make the file do less when it is imported.",
    ),
    "relative_import": (
        "",
        "Give the file's folder a name of letters, digits and _, as packages have.",
    ),
    "module_not_found": (
        "",
        "Install the package in Tapedeck's environment, or put the module next to the file.",
    ),
    "asks_for_input": (
        "",
        "An imported file cannot read input: remove calls of input().",
    ),
    "no_cuda": (
        "",
        "Make the model on the CPU; its device is chosen when it is trained.",
    ),
    "another_net": (
        "",
        "Import a part of the model without that module, or write it with other operations.",
    ),
    "data_dependent": (
        "",
        "Import a submodule that has no such step, or write the step with tensor operations.",
    ),
    "not_followed": ("", "Check the inputs, or import a smaller part of the model."),
    "not_written": (
        "",
        "Free some disk space, or import the model without its weights.",
    ),
}
_OPTIONS = {
    "arguments": """--args '{"name": value}'""",
    "inputs": "--input 1x3x32x32, repeated for each of them",
}


def cure_of(error: BaseException) -> tuple[str, str]:
    """Return the entry that an error is about, and the cure; both may be empty.

    >>> cure_of(ModelImportError("net.py: ModuleNotFoundError: No module named 'einops'", "module_not_found"))[1]
    "Install the package in Tapedeck's environment, or put the module next to the file."
    """
    code = "not_written" if isinstance(error, OSError) else getattr(error, "code", "")
    return _CURES.get(code, ("", ""))


def with_cure(error: ModelImportError) -> str:
    """Format an error with its cure and the command line option concerned."""
    message, (entry, cure) = str(error), cure_of(error)
    ended = message if message.endswith(".") or not cure else f"{message}."
    option = f" ({_OPTIONS[entry]})" if cure and entry in _OPTIONS else ""
    return f"{ended} {cure.removesuffix('.')}{option}." if cure else message
