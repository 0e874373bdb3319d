"""A live model as a project: its drawing, and beside it its weights and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from app import drawing_digest, model_import, own_layers, project_file, start_weights, state_dicts, weights_files
from app.builder.analysis import analyse
from app.export.weights import save_safetensors
from app.model_import import ModelInput
from app.origin import KeptFile, Origin
from app.project import Project
from app.rng import borrowed
from app.source import Source, make_module
from app.training.start import TensorInfo, misfits

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.builder.importer.opaque import OwnClasses
    from app.training.config import StartWeights

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Wish:
    """What is imported, and how. `name` is the model's, `source` what a person calls it by. Without `keep_weights` a
    project has the buffers of its model alone."""

    name: str
    source: str
    inputs: tuple[ModelInput, ...]
    keep_weights: bool = True


def imported(
    model: nn.Module, wish: Wish, folder: Path, own: OwnClasses | None = None, tell: Tell = lambda _words: None
) -> Project:
    """Draw a model; its values lie in `folder`. Raises ImportFailed, OSError, WeightsError."""
    tell(f"Following {wish.name} from its input to its output")
    project = model_import.project_of(model, wish.inputs, wish.name, own=own)
    analysis = analyse(project.graph, own_layers.ops_of(project))
    return _with_values(project, analysis.source if analysis.runnable else None, model, wish, folder, tell)


def _with_values(
    project: Project, source: Source | None, model: nn.Module, wish: Wish, folder: Path, tell: Tell
) -> Project:
    """The project that starts from the model's values, and knows where it comes from. None for `source` if the net
    cannot be made yet: then nobody knows which of them it has."""
    state: dict[str, Tensor] = dict(model.state_dict())
    wrong: dict[str, str] = {}
    buffers: tuple[str, ...] = ()
    if source is not None:
        infos = {key: TensorInfo.of(value) for key, value in state.items()}
        wrong = misfits(infos, state_dicts.net_infos(source))
        state = {key: value for key, value in state.items() if key not in wrong}
        buffers = _unfilled(source, model, state)
    kept = state if wish.keep_weights else {key: state[key] for key in buffers}
    start: StartWeights | None = None
    if kept:
        tell("Writing its weights" if wish.keep_weights else "Writing its buffers")
        start = weights_files.keep(lambda path: save_safetensors(kept, path), wish.source, folder)
    if wrong:
        words = f"{len(wrong)} tensors of the model are not of the net and are not kept: {', '.join(list(wrong)[:4])}."
        project = replace(project, notes=f"{project.notes}\n{words}")
    if source is not None:
        weights = KeptFile(start.path, start.sha256) if start is not None else None
        origin = Origin(wish.source, drawing_digest.digest(project, source), weights=weights, buffers=buffers)
        project = replace(project, origin=origin)
    return project_file.with_start(project, start if wish.keep_weights else start_weights.random_start(project))


def _unfilled(source: Source, model: nn.Module, state: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The buffers that the net's code makes with other values than the model has."""
    import torch

    with borrowed(0), model_import.blank():
        made = dict(make_module(source).named_buffers(remove_duplicate=False))
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)} | made.keys()

    def filled(key: str, value: Tensor) -> bool:
        return key in made and made[key].dtype == value.dtype and torch.equal(made[key], value)

    return tuple(key for key, value in state.items() if key in buffers and not filled(key, value))
