"""Convert a live model to a project: graph, weights and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.builder.analysis import analyse
from app.builder.importer.origin import KeptFile, Origin
from app.engine.requests.import_model import UNCHECKED, ModelImportError, ModelInput
from app.engine.tasks import import_model
from app.export.certify import against_source
from app.export.certify.against_source import Probe
from app.export.weights import save_safetensors
from app.preflight import multi_output
from app.project import custom_layers, drawing_digest, file, model_inits
from app.project.model_inits import Inits
from app.project.project import Project
from app.project.weights import files, state_dicts
from app.project.weights.model_buffers import random_start
from app.source.compiled import make_module
from app.source.generated import Source
from app.training.setup.weights_header import TensorInfo, misfits
from app.util import module_tree
from app.util.formatting import shape_text
from app.util.late_dataclass import dataclass
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.builder.importer.lowering.opaque import OwnClasses
    from app.engine.tasks.parity.check import ParityResult
    from app.training.config import StartWeights

Tell = Callable[[str], None]
LARGE = 4_000_000  # parameters above which the drawing is reported before the comparison


@dataclass(frozen=True)
class Wish:
    """What to import. `name` is the model's, `source` the text that the user knows it by. Without `keep_weights` the
    project has only the model's buffers."""

    name: str
    source: str
    inputs: tuple[ModelInput, ...]
    keep_weights: bool = True
    take_inits: bool = False


def imported(
    model: nn.Module, wish: Wish, folder: Path, inits: Callable[[], Inits], own: OwnClasses | None = None,
    tell: Tell = lambda _words: None, drawn: Callable[[Project], None] | None = None,
) -> Project:  # fmt: skip
    """Import a model and compare the result with it; tensors are written to `folder`. Raises ModelImportError, OSError,
    WeightsError.

    `inits` returns the known initialisations of the parameters. A part that differs after import is kept as one node of
    its own code, if its class allows that; otherwise the import fails. `drawn` receives the project of a large model
    before the comparison, with a note that says so, and without initialisations.
    """
    from app.engine.tasks.parity import held
    from app.engine.tasks.parity.resources import parameter_count

    apart: dict[str, str] = {}
    found, path = held.ParityResult(), ""
    probe: Probe = {}
    known: Inits | None = None
    while True:
        tell(f"Tracing {wish.name} from its input to its output")
        try:
            project = import_model.project_of(model, wish.inputs, wish.name, own=own, apart=apart)
            _check_sizes(project)
        except ModelImportError as error:
            if not apart:
                raise
            raise held.refusal(model, path, found, str(error)) from error
        analysis = analyse(project.graph, custom_layers.ops_of(project))
        _check_inputs(wish, analysis.source, analysis.runnable)
        project = multi_output.with_chief_loss(project, analysis.source)
        valued: Project | None = None
        if drawn is not None and not apart and analysis.runnable and parameter_count(model) > LARGE:
            valued = _with_values(project, analysis.source, model, wish, folder, tell)
            drawn(_with_comparison_note(valued, held.ParityResult(notes=(UNCHECKED,))))
        known = inits() if known is None else known
        probe = probe or held.probe_of(model, wish.keep_weights)
        found = held.against(model, analysis, wish.inputs, probe, tell)
        if not found.differences:
            valued = valued or _with_values(project, analysis.source, model, wish, folder, tell)
            project = _with_comparison_note(valued, found)
            project = _with_reference(project, found, probe, model, wish, folder)
            return _with_inits(project, analysis.source, known, wish)
        path, why = held.part_to_keep(model, found, apart, own, tell)
        apart[path] = why


def _check_sizes(project: Project) -> None:
    """Raise ModelImportError for a block that an empty tensor reaches: inputs of a drawing have sizes of 1 or more."""
    for block in project.blocks.values():
        for node in block.graph.nodes.values():
            shape = node.params.get("shape", ())
            if node.op == "input" and isinstance(shape, tuple) and 0 in shape:
                sizes = shape_text(("N", *shape))
                raise ModelImportError(
                    f"{node.name} of {block.name} is an empty tensor of {sizes}, and inputs of a block have "
                    "sizes of at least 1; import the model with inputs for which it is not empty",
                    "empty_tensor",
                )


def _check_inputs(wish: Wish, source: Source, runnable: bool) -> None:
    """Raise ModelImportError for inputs that nothing uses: the drawn net does not take them."""
    if runnable and len(source.inputs) < len(wish.inputs):
        used = ", ".join(one.name for one in source.inputs)
        raise ModelImportError(
            f"{wish.name} takes {len(wish.inputs)} inputs, but its outputs depend only on {used or 'none'}; "
            "remove the others from its forward, or give them a default",
            "inputs",
        )


def _with_reference(
    project: Project, found: ParityResult, probe: Probe, model: nn.Module, wish: Wish, folder: Path
) -> Project:
    """Add the model's outputs to a project, in a file that certificates compare with."""
    origin = project.origin
    if origin is None:
        return project
    origin = replace(origin, checked=found.said)
    if found.cases:
        state, parameters = (
            model.state_dict(),
            {name for name, _ in module_tree.named_parameters(model, remove_duplicate=False)},
        )
        tensors, cases = against_source.packed([case.record(state.keys()) for case in found.cases])
        kept_values = {key: value for key, value in state.items() if wish.keep_weights or key not in parameters}
        facts = {"model": origin.model, "dtype": found.dtype, "probe": probe, "cases": cases,
                 "values": against_source.hashes(kept_values)}  # fmt: skip
        if sum(tensor.nbytes for tensor in tensors.values()) <= against_source.LARGEST:
            kept = files.keep(lambda path: against_source.file_of(path, tensors, facts), origin.model, folder)
            origin = replace(origin, reference=KeptFile(kept.path, kept.sha256))
        else:
            most = against_source.LARGEST >> 20
            words = f"No reference was kept for certificates: its inputs and outputs take more than {most} MiB."
            project = replace(project, notes=f"{project.notes}\n{words}")
    return replace(project, origin=origin)


def _with_inits(project: Project, source: Source, inits: Inits, wish: Wish) -> Project:
    """Note in a project which of its model's initialisations it lacks; or take them over."""
    from app.engine.tasks.parity.initial import recording_inits

    origin = project.origin
    if origin is None or not inits:
        return project
    with borrowed(0), recording_inits() as notes:
        ours = notes.inits_of(make_module(source))
    lost = model_inits.lost_inits(project, source, inits, ours)
    project = replace(project, origin=replace(origin, inits=lost.inits))
    if wish.take_inits:
        project, lost = model_inits.taken_over(project, lost.inits), replace(lost, inits=(), keys=())
    return replace(project, notes="\n".join(filter(None, (project.notes, f"{lost}"))))


def _with_comparison_note(project: Project, found: ParityResult) -> Project:
    """Return the project with the result of the comparison in its notes."""
    first, *rest = project.notes.splitlines()
    return replace(project, notes="\n".join((f"{first} {found.said}".rstrip(), *rest, *found.notes)))


def _with_values(project: Project, source: Source, model: nn.Module, wish: Wish, folder: Path, tell: Tell) -> Project:
    """Make a project start from the model's weights, and note its origin."""
    state: dict[str, Tensor] = dict(model.state_dict())
    infos = {key: TensorInfo.from_tensor(value) for key, value in state.items()}
    wrong = misfits(infos, state_dicts.net_infos(source))
    state = {key: value for key, value in state.items() if key not in wrong}
    buffers = _unfilled(source, model, state)
    kept = state if wish.keep_weights else {key: state[key] for key in buffers}
    start: StartWeights | None = None
    if kept:
        tell("Writing its weights" if wish.keep_weights else "Writing its buffers")
        start = files.keep(lambda path: save_safetensors(kept, path), wish.source, folder)
    if wrong:
        some = ", ".join(list(wrong)[:4])
        words = f"{len(wrong)} tensors of the model are not part of the net and are dropped: {some}."
        project = replace(project, notes=f"{project.notes}\n{words}")
    weights = KeptFile(start.path, start.sha256) if start is not None else None
    origin = Origin(wish.source, drawing_digest.digest(project, source), weights=weights, buffers=buffers)
    project = replace(project, origin=origin)
    return file.with_start(project, start if wish.keep_weights else random_start(project))


def _unfilled(source: Source, model: nn.Module, state: Mapping[str, Tensor]) -> tuple[str, ...]:
    """List buffers that the net's code initialises to other values than the model's."""
    import torch

    with borrowed(0), import_model.blank():
        made = dict(module_tree.named_buffers(make_module(source), remove_duplicate=False))
    buffers = {name for name, _ in module_tree.named_buffers(model, remove_duplicate=False)} | made.keys()

    def filled(key: str, value: Tensor) -> bool:
        return key in made and made[key].dtype == value.dtype and torch.equal(made[key], value)

    return tuple(key for key, value in state.items() if key in buffers and not filled(key, value))
