"""`train.py`: the run as a plain PyTorch script next to `model.py`.

Its text is `train.py.jinja`; `app.export.script_context` computes the variables.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from pprint import pformat
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from app.export.script_context import context, imports_of
from app.export.script_reading import beside, quoted
from app.export.weights import save_pt
from app.training.job import Job, JobError, check_numbers
from app.training.setup.initial_weights import tensors
from app.util import atomic


def start_file(script: Path) -> Path:
    """Return the file of a script's start weights, in its folder."""
    return script.with_name(f"{script.stem}_start.pt")


def begin_file(script: Path) -> Path:
    """Return the file of the checkpoint that a script begins with, in its folder."""
    return script.with_name(f"{script.stem}_begin.pt")


def write_start(job: Job, script: Path) -> list[Path]:
    """Write the files that a script reads to its folder: start weights or the checkpoint that it begins with, and the
    file of a Dataset class; return their paths.

    Raises StartError, WeightsError, DataError, OSError.
    """
    files = beside(job, script)
    if job.begin:
        path = begin_file(script)
        atomic.write_bytes(path, Path(job.begin).read_bytes())
        return [path, *files]
    if job.training.start is None:
        return files
    path = start_file(script)
    save_pt(tensors(job.training.start), path)
    return [path, *files]


def training_script(
    job: Job,
    model_module_name: str | None = None,
    script: str = "train.py",
) -> str:
    """Return the text of `train.py` for `job`, whose net is the class in `<model_module_name>.py`, None for that of
    its source.

    `script` is its file name, which determines that of its start weights, see `write_start`.
    Imports torch (for the signatures of the loss and the optimizer). Raises JobError or ChoiceError.
    """
    check_numbers(job)
    model_module_name = (
        job.source.module_name if model_module_name is None else model_module_name
    )
    for name in (model_module_name, job.source.class_name):
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            raise JobError(f"“{name}” is not a name that Python can import.")
    start, begin = start_file(Path(script)).name, begin_file(Path(script)).name
    values = context(job, model_module_name, start, begin)
    template = _template()
    return template.render(
        values, imports=imports_of(template.render(values, imports=[]))
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "repr": repr,
        "quoted": quoted,
        "escaped": _escaped,
        "pretty": _pretty,
        "source": _source,
    }
    return environment.get_template("train.py.jinja")


def _escaped(text: str) -> str:
    """Escape text for a docstring, such as a file name with quotes."""
    return "".join('\\"' if char == '"' else repr(char)[1:-1] for char in text)


def _pretty(value: Any) -> str:
    """Format a value as Python, on several lines if needed."""
    return pformat(_plain(value), width=110, sort_dicts=False)


def _plain(value: Any) -> Any:
    """Frozen maps as dictionaries, which have a `repr` in Python."""
    return (
        {key: _plain(entry) for key, entry in value.items()}
        if isinstance(value, Mapping)
        else value
    )


@cache
def _source(function: Any) -> str:
    """Return the source of a function or class of this program."""
    return inspect.getsource(function).rstrip()
