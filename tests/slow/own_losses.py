"""Models of the usual forms, trained by the program, by its script and by a plain loop.

`python -m tests.slow.own_losses` trains all of them, `python -m tests.slow.own_losses Own20 Words19` some.
40 models return their own loss, 20 are language models, 10 are regressions of odd shapes, 13 have one output for two
classes, 4 compute in another precision than that of their data. Each is trained to the losses of a loop that a person
would write, bit for bit, or refused with a cause that is true. Prints a table; exits with 1 where one is neither.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS, BATCH, SEED = 3, 16, 0

HEAD = """
import collections, dataclasses, types
from typing import Any, NamedTuple
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

class _Auto(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.d, self.c = nn.Linear(12, 6), nn.Linear(6, 12), nn.Linear(6, 4)
    def both(self, x):
        h = self.e(x.flatten(1)).tanh()
        r = self.d(h)
        return r, (r - x.flatten(1)).pow(2).mean()
    def scores(self, x):
        return self.c(self.e(x.flatten(1)).tanh())

@dataclasses.dataclass
class Out:
    loss: Any = None
    logits: Any = None

class Pair(NamedTuple):
    logits: Any
    loss: Any

class _Words(nn.Module):
    def __init__(self, v=30):
        super().__init__()
        self.e, self.o = nn.Embedding(v, 8), nn.Linear(8, v)
    def logits(self, idx):
        return self.o(self.e(idx))

class _Line(nn.Module):
    def __init__(self, out=1):
        super().__init__()
        self.l = nn.Linear(5, out)

class _Data(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.x, self.y = self.make(g)
    def __len__(self):
        return 48
    def __getitem__(self, i):
        return self.x[i], self.y[i]

class Vectors(_Data):
    def make(self, g):
        return torch.randn(48, 12, generator=g), torch.arange(48) % 4
class Tokens(_Data):
    vocab = 20
    def make(self, g):
        text = torch.randint(0, self.vocab, (48, 10), generator=g)
        return text[:, :-1], text[:, 1:]
class Ignoring(Tokens):
    def make(self, g):
        x, y = super().make(g)
        return x, torch.where(torch.arange(9) < 3, -100, y)
class IgnoringOne(Tokens):
    def make(self, g):
        x, y = super().make(g)
        return x, torch.where(torch.arange(9) < 3, -1, y)
class _Values(_Data):
    def make(self, g):
        x = torch.randn(48, 5, generator=g)
        return x, self.target(x)
class Flat(_Values):
    def target(self, x): return x.sum(1)
class Column(_Values):
    def target(self, x): return x.sum(1, keepdim=True)
class Two(_Values):
    def target(self, x): return torch.stack((x.sum(1), x.prod(1)), 1)
class Sign(_Values):
    def target(self, x): return (x[:, 0] > 0.3).long()
class SignColumn(_Values):
    def target(self, x): return (x[:, :1] > 0.3).long()
class SignBool(_Values):
    def target(self, x): return x[:, 0] > 0.3
class Thirds(_Values):
    def target(self, x): return torch.arange(48) % 3
class Grid(_Values):
    def target(self, x): return torch.stack((x, x * x), 2)
"""

_AUTO = "class {name}(_Auto):\n    def forward(self, x):\n        r, loss = self.both(x)\n        return {code}\n"
_FIT = "class {name}(_Auto):\n    def forward(self, {args}):\n        logits = self.scores(x)\n{body}\n"
_OPTIONAL = "        loss = F.cross_entropy(logits, {y}) if {y} is not None else None\n        return {code}"
_NEEDED = "        loss = F.cross_entropy(logits, {y})\n        return {code}"
_INPUT_ONLY = [
    "loss",
    "(loss, r)",
    "(r, loss)",
    "[r, loss]",
    "[loss, r]",
    '{"loss": loss, "r": r}',
    '{"r": r, "loss": loss}',
    '{"recon": r, "total_loss": loss}',
    "Out(loss, r)",
    "Pair(r, loss)",
    "types.SimpleNamespace(r=r, loss=loss)",
    "collections.OrderedDict(r=r, loss=loss)",
    "(loss, r, r.detach())",
    "(r, r.detach(), loss)",
    '{"r": r, "loss": loss, "kl_loss": 0 * loss, "acc": loss.detach()}',
    '{"loss_a": loss / 2, "loss_b": loss / 2}',
    '{"r": r, "losses": {"a_loss": loss / 4, "b_loss": 3 * loss / 4}}',
    "(loss,)",
    '{"loss": loss}',
    "Out(loss)",
]
_WITH_TARGET = [
    ("x, y", _NEEDED, "loss"),
    ("x, targets", _NEEDED, "(logits, loss)"),
    ("x, labels", _NEEDED, "(loss, logits)"),
    ("x, target", _NEEDED, '{"loss": loss, "logits": logits}'),
    ("x, label", _NEEDED, "Out(loss, logits)"),
    ("x, labels=None", _OPTIONAL, "Out(loss, logits)"),
    ("x, targets=None", _OPTIONAL, "(logits, loss)"),
    ("x, y=None", _OPTIONAL, "(loss, logits)"),
    ("x, target=None", _OPTIONAL, '{"logits": logits, "loss": loss}'),
    ("x, labels=None", _OPTIONAL, "loss if loss is not None else logits"),
    ("x, targets=None", _OPTIONAL, "(loss, logits) if loss is not None else logits"),
    (
        "x, y=None",
        _OPTIONAL,
        '{"loss": loss, "logits": logits} if loss is not None else {"logits": logits}',
    ),
    ("x, labels=None", _OPTIONAL, "Pair(logits, loss)"),
    ("x, label=None", _OPTIONAL, "[logits, loss]"),
    (
        "x, targets=None",
        _OPTIONAL,
        "loss if self.training and loss is not None else logits",
    ),
    ("x, labels=None", _OPTIONAL, "Out(loss if self.training else None, logits)"),
]
_TRAIN_ONLY = [
    "loss if self.training else r",
    '{"loss": loss} if self.training else r',
    "(loss, r) if self.training else r",
    "Out(loss, r) if self.training else Out(None, r)",
]
_LANGUAGE = [
    "logits",
    "logits.transpose(1, 2)",
    "logits.permute(0, 2, 1).contiguous()",
    "logits.flatten(0, 1)",
    "(logits,)",
    '{"logits": logits}',
    "Out(None, logits)",
]
_REGRESSIONS = [
    ("self.l(x)", 1, "Flat"),
    ("self.l(x).squeeze(-1)", 1, "Flat"),
    ("self.l(x).squeeze()", 1, "Flat"),
    ("self.l(x)[:, 0]", 1, "Column"),
    ("self.l(x)[:, None]", 1, "Flat"),
    ("self.l(x).squeeze(1)", 1, "Column"),
    ("self.l(x)", 2, "Two"),
    ("self.l(x).unsqueeze(1)", 2, "Two"),
    ("self.l(x)", 10, "Grid"),
    ("self.l(x)", 3, "Two"),
]
_TRAINED = "F.binary_cross_entropy_with_logits(self.l(x), y)"
_BINARY: list[tuple[str, str, str, tuple[str, ...]]] = [
    ("x", "self.l(x)", "Sign", ()),
    ("x", "self.l(x).squeeze(-1)", "Sign", ()),
    ("x", "self.l(x).squeeze()", "Sign", ()),
    ("x", "(self.l(x),)", "Sign", ("--loss", "bce_with_logits")),
    ("x", "self.l(x)", "SignColumn", ()),
    ("x", "self.l(x).flatten()", "SignBool", ()),
    ("x", "self.l(x).sigmoid()", "Sign", ("--loss", "bce")),
    ("x", "self.l(x)", "SignBool", ("--loss", "mse")),
    ("x, y", _TRAINED, "Sign", ("--input", "y=2x1")),
    (
        "x, labels",
        _TRAINED.replace("y)", "labels[:, None])"),
        "SignBool",
        ("--input", "labels=2"),
    ),
    ("x, y=None", f"self.l(x), None if y is None else {_TRAINED}", "Sign", ()),
    ("x", "self.l(x)", "Thirds", ("--loss", "bce_with_logits")),
    ("x", "self.l(x)", "Sign", ("--loss", "cross_entropy")),
]

_PRECISE = [
    ("double", "Two", 2),
    ("double", "Sign", 1),
    ("bfloat16", "Two", 2),
    ("half", "Column", 1),
]


@dataclass(frozen=True)
class Case:
    """A model by its code, its data, the options of the command, and its plain loss of output, target and input.

    `refused` are words of the cause for which it must be refused, "" for one that must be trained.
    """

    name: str
    code: str
    data: str
    plain: str
    options: tuple[str, ...] = ()
    refused: str = ""


def cases() -> Iterator[Case]:
    """Yield 40 models with a loss of their own, 20 language models, 10 regressions, 13 of two classes, and 4 in another
    precision than their data."""
    x = ("--input", "x=2x12")
    for number, code in enumerate(_INPUT_ONLY):
        yield Case(
            f"Own{number}",
            _AUTO.format(name=f"Own{number}", code=code),
            "Vectors",
            "auto",
            x,
        )
    for number, code in enumerate(_TRAIN_ONLY, len(_INPUT_ONLY)):
        yield Case(
            f"Own{number}",
            _AUTO.format(name=f"Own{number}", code=code),
            "Vectors",
            "auto",
            x,
        )
    for number, (args, body, code) in enumerate(
        _WITH_TARGET, len(_INPUT_ONLY) + len(_TRAIN_ONLY)
    ):
        label = args.removeprefix("x, ").partition("=")[0]
        text = _FIT.format(
            name=f"Own{number}", args=args, body=body.format(y=label, code=code)
        )
        more = () if "=" in args else ("--input", f"{label}=2:int64")
        yield Case(f"Own{number}", text, "Vectors", "scores", (*x, *more))
    number = 0
    for data in ("Tokens", "Ignoring", "IgnoringOne"):
        for code in _LANGUAGE if data == "Tokens" else _LANGUAGE[:6]:
            text = f"class Words{number}(_Words):\n    def forward(self, idx):\n        logits = self.logits(idx)\n"
            yield Case(
                f"Words{number}", f"{text}        return {code}\n", data, "words"
            )
            number += 1
    text = f"class Words{number}(_Words):\n    def forward(self, idx):\n        return self.logits(idx)\n"
    pad = ("--loss", "cross_entropy", "--set", "loss.params.ignore_index=0")
    yield Case(f"Words{number}", text, "Tokens", "padded", pad)
    for place, (code, out, data) in enumerate(_REGRESSIONS):
        text = f"class Line{place}(_Line):\n    def __init__(self):\n        super().__init__({out})\n"
        text += f"    def forward(self, x):\n        return {code}\n"
        refused = "out_features=2" if out == 3 else ""
        yield Case(f"Line{place}", text, data, "values", refused=refused)
    for number, (args, code, data, options) in enumerate(_BINARY):
        text = f"class Two{number}(_Line):\n    def forward(self, {args}):\n        return {code}\n"
        plain = {"bce": "probabilities", "mse": "values"}.get(
            options[-1] if options else "", "logits"
        )
        refused = (
            {"Thirds": "3 classes", "Sign": "takes one value"}[data]
            if number > 10
            else ""
        )
        yield Case(
            f"Two{number}", text, data, plain, ("--input", "x=2x5", *options), refused
        )
    for number, (precision, data, out) in enumerate(_PRECISE):
        text = f"class Fine{number}(_Line):\n    def __init__(self):\n        super().__init__({out})\n"
        text += f"        self.{precision}()\n    def forward(self, x):\n        return self.l(x)\n"
        plain = "logits" if data == "Sign" else "values"
        yield Case(f"Fine{number}", text, data, plain, ("--input", "x=2x5"))


def plain_losses(case: Case, module: object, order: Sequence[Tensor]) -> list[float]:
    """Train as a person would write it, on the batches `order` of the samples."""
    torch.manual_seed(SEED)
    model = getattr(module, case.name)()
    data = getattr(module, case.data)()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    found = []
    for batch in order:
        optimizer.zero_grad()
        loss = _plain_loss(case, model, data.x[batch], data.y[batch])
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def _plain_loss(case: Case, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    if case.plain == "auto":
        return model.both(x)[1]
    if case.plain == "scores":
        return F.cross_entropy(model.scores(x), y)
    if case.plain in ("words", "padded"):
        ignored = (
            0 if case.plain == "padded" else -1 if case.data == "IgnoringOne" else -100
        )
        return F.cross_entropy(model.logits(x).transpose(1, 2), y, ignore_index=ignored)
    output = model.l(x.to(model.l.weight.dtype))
    if case.plain == "logits":
        return F.binary_cross_entropy_with_logits(output, y.float().reshape(-1, 1))
    if case.plain == "probabilities":
        return F.binary_cross_entropy(output.sigmoid(), y.float().reshape(-1, 1))
    return F.mse_loss(output.reshape(y.shape), y.float())


def program_losses(case: Case, folder: Path) -> tuple[list[float], str]:
    """Train by the command in `folder`, where the code is; return the losses of its steps, or what it said."""
    import contextlib
    import io
    import json

    from app.cli import run

    out, said = io.StringIO(), io.StringIO()
    settings = [
        f"batch_size={BATCH}",
        "threads=1",
        "data.validation_fraction=0.1",
        "data.shuffle=false",
        f"data.options.dataset={case.data}",
    ]
    chosen = [part for one in settings for part in ("--set", one)]
    arguments = [
        "train",
        f"models.py:{case.name}",
        *case.options,
        "--on",
        "models.py",
        "--epochs",
        "1",
        "--seed",
        str(SEED),
        "--trust",
        "--json",
        "--out",
        str(folder / case.name),
        *chosen,
    ]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = run(arguments)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    words = next((line["loss"] for line in lines if line["event"] == "started"), "")
    return (
        (_of_steps(out.getvalue()), words)
        if code == 0
        else ([], said.getvalue().strip())
    )


def script_losses(folder: Path) -> list[float]:
    """Run the script that a training left in `folder`; return the losses of its steps."""
    import contextlib
    import io

    from tests.support.script_here import run_script

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run_script(folder, "--json")
    return _of_steps(out.getvalue())


def _of_steps(text: str) -> list[float]:
    """Return the losses of steps in lines of JSON."""
    import json

    lines = [json.loads(line) for line in text.splitlines()]
    return [line["loss"] for line in lines if line["event"] == "step"]


def written(folder: Path, chosen: Sequence[Case]) -> None:
    """Write the file of the models and their data."""
    (folder / "models.py").write_text(HEAD + "\n".join(case.code for case in chosen))


def result_of(case: Case, module: object, folder: Path) -> tuple[bool, str]:
    """Return whether a case is as it must be, and what was seen."""
    losses, words = program_losses(case, folder)
    if case.refused:
        return not losses and case.refused in words, words
    if not losses:
        return False, words
    from app.data.splits import stratified_split

    labels = getattr(module, case.data)().y
    ids = (
        labels.flatten().long()
        if case.data.startswith(("Vectors", "Sign"))
        else torch.zeros(len(labels))
    )
    order = stratified_split(ids, 0.1, 0.0, 0)[0].split(BATCH)
    plain = plain_losses(case, module, order)
    if losses != plain:
        return False, f"{words}: {losses} is not {plain}"
    script = script_losses(folder / case.name)
    return (
        script == plain,
        words if script == plain else f"{words}: the script has {script}, not {plain}",
    )


@contextmanager
def in_one_process(home: str) -> Iterator[None]:
    """Open models in this process, and draw no pictures of runs: both would take seconds a model."""
    from app.cli import models
    from app.views.pictures import headless_pictures

    with (
        mock.patch.dict(os.environ, {"HOME": home, "XDG_CONFIG_HOME": home}),
        mock.patch.object(
            models, "answer", lambda request, _model, _seconds, task: task(request)
        ),
        mock.patch.object(headless_pictures, "run_pictures", lambda *_: None),
    ):
        yield


def main(names: Sequence[str]) -> int:
    """Print a table of the cases of these names, of all without any; return 1 if one is not as it must be.

    Raises SystemExit for a name that none has.
    """
    import importlib

    known, wrong = [*cases()], 0
    if unknown := {*names} - {case.name for case in known}:
        raise SystemExit(
            f"There is no case {', '.join(sorted(unknown))}. There are Own0-39, Words0-19, Line0-9, Two0-12."
        )
    chosen = [case for case in known if case.name in names or not names]
    with tempfile.TemporaryDirectory() as name, in_one_process(name):
        folder = Path(name)
        written(folder, known)
        os.chdir(folder)
        sys.path.insert(0, name)
        module = importlib.import_module("models")
        torch.set_num_threads(1)
        for case in chosen:
            right, words = result_of(case, module, folder)
            wrong += not right
            print(
                f"{'as it must be' if right else 'WRONG':14}{case.name:9}{case.data:12}{words[:150]}",
                flush=True,
            )
        os.chdir("/")
    print(f"{len(chosen)} models, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
