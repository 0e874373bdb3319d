"""`train.py`: the run as a plain PyTorch script beside `model.py`.

What stands in it is read off `train.py.jinja`; `app.export.script.context` works out the values.
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

from app.export.script.context import context, imports_of
from app.export.script.reading import beside, quoted
from app.export.weights import save_pt
from app.training.job import Job, JobError, check_numbers
from app.training.setup.initial_weights import tensors


def start_file(script: Path) -> Path:
    """Where the start weights of a script lie: beside it."""
    return script.with_name(f"{script.stem}_start.pt")


def write_start(job: Job, script: Path) -> list[Path]:
    """Write beside a script what it reads: start weights, and the file of a Dataset class; returns what was written.

    Raises StartError, WeightsError, DataError.
    """
    files = beside(job, script)
    if job.training.start is None:
        return files
    path = start_file(script)
    save_pt(tensors(job.training.start), path)
    return [path, *files]


def training_script(
    job: Job, model_module_name: str = "model", script: str = "train.py", *, hands: bool = False
) -> str:
    """The text of `train.py` for `job`, whose net is the class of `<model_module_name>.py` beside it.

    `script` is the name that it will have; its start weights are read from a file of that name, see `write_start`.
    With `hands` it pauses, steps and stops when it is told so on its standard input. It takes checkpoints then, and
    where `save_every` asks for them.
    Imports torch (the signatures of the loss and the optimizer are read off it). Raises JobError or ChoiceError.
    """
    check_numbers(job)
    for name in (model_module_name, job.source.class_name):
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            raise JobError(f"“{name}” is no name that Python can import.")
    values = context(job, model_module_name, start_file(Path(script)).name, hands)
    template = _template()
    return template.render(values, imports=imports_of(template.render(values, imports=[])))


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"repr": repr, "quoted": quoted, "escaped": _escaped, "pretty": _pretty, "source": _source}
    return environment.get_template("train.py.jinja")


def _escaped(text: str) -> str:
    """A text as it may stand in a docstring, such as the name of a file, which can have quotes in it."""
    return "".join('\\"' if char == '"' else repr(char)[1:-1] for char in text)


def _pretty(value: Any) -> str:
    """A value as a person would write it in Python, on as many lines as it needs."""
    return pformat(_plain(value), width=110, sort_dicts=False)


def _plain(value: Any) -> Any:
    """Frozen maps as dictionaries, which have a `repr` in Python."""
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, Mapping) else value


@cache
def _source(function: Any) -> str:
    """The text of a function or a class of this program."""
    return inspect.getsource(function).rstrip()
