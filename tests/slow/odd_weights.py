"""One state_dict in the forms in which people have it, with the values that torch reads of them."""

from __future__ import annotations

import argparse
import json
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from app.export.errors import WeightsError
from app.project.weights import state_dicts
from app.project.weights.state_dict_diff import diff, suggestions, transposed
from app.training.setup.weights_header import TensorInfo
from tests.slow.odd_outcome import Outcome

State = dict[str, Tensor]
INPUTS = 5


class Net(nn.Module):
    """An embedding, layers with a buffer, and a head that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 6)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 6))
        self.head = nn.Linear(6, 12, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body(self.embed(tokens)))
        return scores


def normed(old: bool, layers: int = 2) -> nn.Module:
    """Return a net with weight_norm of torch.nn.utils, or of its parametrizations."""
    norm: Any = (
        torch.nn.utils.weight_norm
        if old
        else torch.nn.utils.parametrizations.weight_norm
    )
    torch.manual_seed(3)
    with warnings.catch_warnings(action="ignore"):
        return nn.Sequential(*(norm(nn.Linear(INPUTS, INPUTS)) for _ in range(layers)))


def spectral(old: bool) -> nn.Module:
    """Return a net with spectral_norm of torch.nn.utils, or of its parametrizations."""
    norm: Any = (
        torch.nn.utils.spectral_norm
        if old
        else torch.nn.utils.parametrizations.spectral_norm
    )
    torch.manual_seed(3)
    return nn.Sequential(norm(nn.Linear(INPUTS, 3)))


@dataclass(frozen=True)
class Form:
    """How the state_dict is written into a folder: it returns what is read. `part` is the one of several to take.

    `refused` are the words that name why it is not read, `said` words of a note; `net` is another net than `Net`.
    `scale` is what the values of the part are multiplied by.
    """

    write: Callable[[State, Path], Path]
    refused: str = ""
    said: str = ""
    net: Callable[[], nn.Module] = Net
    given: Callable[[], nn.Module] | None = None
    scale: float = 1.0
    dtype: torch.dtype | None = None
    fits: bool = True


def _saved(
    wrap: Callable[[State], Any], name: str = "w.pt"
) -> Callable[[State, Path], Path]:
    def write(state: State, folder: Path) -> Path:
        torch.save(wrap(state), folder / name)
        return folder / name

    return write


def _prefixed(*prefixes: str) -> Callable[[State], State]:
    return lambda state: {
        "".join(prefixes) + key: value for key, value in state.items()
    }


def _safe(wrap: Callable[[State], State] = dict) -> Callable[[State, Path], Path]:
    def write(state: State, folder: Path) -> Path:
        save_file(
            {key: value.clone() for key, value in wrap(state).items()},
            folder / "w.safetensors",
        )
        return folder / "w.safetensors"

    return write


def _part(name: str, wrap: Callable[[State], Any]) -> Callable[[State, Path], Path]:
    return lambda state, folder: Path(f"{_saved(wrap)(state, folder)}:{name}")


def _in_dtype(dtype: torch.dtype) -> Callable[[State], State]:
    return lambda state: {
        k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()
    }


def _shards(
    state: State,
    folder: Path,
    binary: bool = False,
    lost: bool = False,
    place: str = "",
    short: bool = False,
) -> Path:
    """Write two files and their index; without the second, with an index that leads elsewhere, or without a tensor."""
    keys, stem, end = (
        sorted(state),
        "pytorch_model" if binary else "model",
        "bin" if binary else "safetensors",
    )
    names = [f"{stem}-0000{number}-of-00002.{end}" for number in (1, 2)]
    parts = dict(zip(names, (keys[:3], keys[3:]), strict=True))
    for name, some in parts.items():
        held = {key: state[key].clone() for key in (some[:-1] if short else some)}
        if not (lost and name == names[1]):
            (torch.save if binary else save_file)(held, folder / name)
    weight_map = {key: place + name for name, some in parts.items() for key in some}
    index = folder / f"{stem}.{end}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def _tied(_state: State, folder: Path) -> Path:
    torch.manual_seed(5)
    save_model(Net(), str(folder / "w.safetensors"))
    return folder / "w.safetensors"


def _lightning(state: State) -> dict[str, Any]:
    settings = argparse.Namespace(lr=0.1, path=Path("data"), loss=nn.CrossEntropyLoss())
    return {
        "pytorch-lightning_version": "2.6.2",
        "state_dict": _prefixed("model.")(state),
        "hyper_parameters": {"args": settings},
        "optimizer_states": [{"state": {}, "param_groups": []}],
        "loops": {},
    }


def _overlapping(state: State, folder: Path) -> Path:
    path = _safe()(state, folder)
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8 : 8 + length])
    head[next(key for key in head if key != "__metadata__")]["data_offsets"][1] += 4
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
    return path


def _whole(_state: State, folder: Path) -> Path:
    torch.save(Net(), folder / "w.pt")
    return folder / "w.pt"


def _turned(state: State) -> State:
    return {
        k.replace("weight", "kernel"): v.t().contiguous() if v.ndim == 2 else v
        for k, v in state.items()
    }


def _with_average(state: State) -> dict[str, Any]:
    optimizer = {
        "state": {0: {"exp_avg": torch.zeros(12, 6)}},
        "param_groups": [{"lr": 0.1, "params": [0]}],
    }
    return {
        "model": state,
        "model_ema": {k: v * 2 for k, v in state.items()},
        "optimizer": optimizer,
    }


def weight_kinds() -> dict[str, Form]:
    """Return the forms by name."""
    old_norm, new_norm = lambda: normed(True), lambda: normed(False)
    within = lambda: nn.Sequential(nn.Identity(), normed(False))  # noqa: E731
    return {
        "plain .pt": Form(_saved(dict)),
        "plain .pth": Form(_saved(dict, "w.pth")),
        "plain .bin": Form(_saved(dict, "w.bin")),
        "plain .ckpt": Form(_saved(dict, "w.ckpt")),
        "plain .pth.tar": Form(
            _saved(lambda state: {"state_dict": state, "epoch": 9}, "w.pth.tar")
        ),
        ".safetensors": Form(_safe()),
        "module.": Form(_saved(_prefixed("module.")), said="DataParallel"),
        "_orig_mod.": Form(_saved(_prefixed("_orig_mod.")), said="torch.compile"),
        "_orig_mod.module.": Form(_saved(_prefixed("_orig_mod.", "module."))),
        "module._orig_mod.": Form(_saved(_prefixed("module.", "_orig_mod."))),
        "module.module._orig_mod.": Form(
            _saved(_prefixed("module.", "module.", "_orig_mod."))
        ),
        "a compiled part": Form(
            _saved(
                lambda s: {
                    k.replace("body.", "body._orig_mod."): v for k, v in s.items()
                }
            )
        ),
        "AveragedModel": Form(
            _saved(
                lambda s: {"n_averaged": torch.tensor(3), **_prefixed("module.")(s)}
            ),
            said="AveragedModel",
        ),
        "state_dict": Form(
            _saved(lambda s: {"epoch": 3, "state_dict": s}), said="under “state_dict”"
        ),
        "model > state_dict": Form(
            _saved(lambda s: {"model": {"state_dict": s}, "loss": 0.5})
        ),
        "three levels": Form(_saved(lambda s: {"ckpt": {"net": {"weights": s}}})),
        "model > state_dict, net.": Form(
            _saved(lambda s: {"model": {"state_dict": _prefixed("net.")(s)}})
        ),
        "beside an average": Form(_saved(_with_average), said="model_ema too"),
        "the average of two": Form(_part("model_ema", _with_average), scale=2.0),
        "a part that is not there": Form(
            _part("ema", _with_average), refused="It has: model, model_ema"
        ),
        "Lightning": Form(_saved(_lightning, "w.ckpt"), said="argparse.Namespace"),
        "a whole module": Form(_whole, refused="refers to tests.slow.odd_weights.Net"),
        "a module in a dictionary": Form(
            _saved(lambda _s: {"model": nn.Linear(2, 2), "epoch": 3}),
            refused="torch.nn.modules.linear.Linear",
        ),
        "tied, with aliases": Form(_tied, said="head.weight (embed.weight)"),
        "bfloat16": Form(_safe(_in_dtype(torch.bfloat16)), dtype=torch.bfloat16),
        "float16": Form(_saved(_in_dtype(torch.float16)), dtype=torch.float16),
        "float8": Form(
            _safe(_in_dtype(torch.float8_e4m3fn)),
            dtype=torch.float8_e4m3fn,
            said="float8_e4m3fn",
        ),
        "shards": Form(_shards, said="in 2 files"),
        "shards by their index": Form(
            lambda s, f: _shards(s, f) / "model.safetensors.index.json"
        ),
        "shards of .bin": Form(
            lambda s, f: _shards(s, f, binary=True), said="in 2 files"
        ),
        "a shard missing": Form(
            lambda s, f: _shards(s, f, lost=True),
            refused="model-00002-of-00002.safetensors, which",
        ),
        "a shard elsewhere": Form(
            lambda s, f: _shards(s, f, place="../"),
            refused="not a file in its own folder",
        ),
        "a tensor missing": Form(
            lambda s, f: _shards(s, f, short=True), refused="says that it has"
        ),
        "a folder with one file": Form(lambda s, f: _safe()(s, f).parent),
        "overlapping offsets": Form(_overlapping, refused="damaged or truncated"),
        "transposed": Form(_safe(_turned), said="only transposed", fits=False),
        "old weight_norm": Form(_saved(dict), net=new_norm, given=old_norm),
        "old weight_norm, in a part": Form(_saved(dict), net=within, given=old_norm),
        "new weight_norm": Form(_saved(dict), net=old_norm, given=new_norm),
        "old spectral_norm": Form(
            _saved(dict), net=lambda: spectral(False), given=lambda: spectral(True)
        ),
        "no tensors": Form(
            _saved(lambda _s: {"epoch": 3}), refused="there are no tensors"
        ),
    }


def check_weights(name: str, folder: Path) -> Outcome:
    """Write the state_dict in this form, read it, follow what is suggested, and load it into a net."""
    form = weight_kinds()[name]
    torch.manual_seed(5)
    made = (form.given or form.net)()
    state = dict(made.state_dict())
    path = form.write(state, folder)
    try:
        read = state_dicts.read(path)
    except WeightsError as error:
        right = (
            bool(form.refused)
            and form.refused in str(error)
            and "weights_only" not in str(error)
        )
        return Outcome(name, str(error), "" if right else f"refused: {error}")
    if form.refused:
        return Outcome(name, "", f"read, not refused by “{form.refused}”")
    net = form.net()
    ours = {
        key: TensorInfo.from_tensor(value) for key, value in net.state_dict().items()
    }
    offers = suggestions(read.infos, ours)
    found = diff(read.infos, ours, offers[-1].names if offers else {})
    notes = " ".join((*read.notes, transposed(read.infos, ours)))
    outcome = f"{found.counts_text()}; {notes}".rstrip("; ")
    if form.said not in notes:
        return Outcome(name, outcome, f"“{form.said}” is not said")
    if found.strict != form.fits:
        return Outcome(name, outcome, "does not fit" if form.fits else "fits")
    return Outcome(
        name, outcome, _difference(form, made, net, read, found) if form.fits else ""
    )


def _difference(
    form: Form, made: nn.Module, net: nn.Module, read: Any, found: Any
) -> str:
    """Return which values differ from those that were written, "" for none."""
    net.load_state_dict(state_dicts.selected_tensors(read, found))
    if form.given is not None:
        x = torch.ones(2, INPUTS)
        return (
            ""
            if torch.allclose(made.eval()(x), net.eval()(x), atol=1e-5)
            else "other outputs"
        )
    for key, value in made.state_dict().items():
        expected = value * form.scale if form.scale != 1 else value
        if form.dtype is not None and expected.is_floating_point():
            expected = expected.to(form.dtype).to(value.dtype)
        if not torch.equal(net.state_dict()[key], expected):
            return f"{key} differs"
    return ""
