"""Convert a live model to a project: graph, weights and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch.nn.parameter import is_lazy

from app.builder.analysis import analyse
from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import Catalog, catalog
from app.builder.origin import KeptFile, Origin
from app.export import against_source
from app.export.against_source import Probe
from app.export.weights import save_safetensors
from app.features.importing.compute.building import import_module
from app.features.importing.compute.errors import code_of_trace, fitting, line_in
from app.features.importing.compute.lowering.ir import DraftError
from app.features.importing.compute.parity import held
from app.features.importing.compute.parity.initial import blank, recording_inits
from app.features.importing.compute.parity.subject import parameter_count
from app.features.importing.compute.tracing.frames import TraceError
from app.features.importing.values import UNCHECKED, ModelImportError
from app.preflight import multi_output
from app.project import custom_layers, drawing_digest, file, model_inits
from app.project.model_inits import Inits
from app.project.project import Project
from app.project.weights import files, state_dicts
from app.project.weights.model_buffers import random_start
from app.source.compiled import make_module
from app.source.generated import Source
from app.sources.examples import dtype_of
from app.sources.spec import InputSpec
from app.training.setup.weights_header import TensorInfo, misfits
from app.util import module_tree
from app.util.formatting import shape_text
from app.util.rng import borrowed

if TYPE_CHECKING:
    from torch import Tensor, nn

    from app.features.importing.compute.lowering.opaque import OwnClasses
    from app.features.importing.compute.parity.check import ParityResult
    from app.training.config import StartWeights

Tell = Callable[[str], None]
_NO_STATISTICS = "Expected more than 1 value per channel when training"  # of one sample; of two there are
LARGE = (
    4_000_000  # parameters above which the drawing is reported before the comparison
)


class Wish(Struct, frozen=True):
    """What to import. `name` is the model's, `source` the text that the user knows it by. Without `keep_weights` the
    project has only the model's buffers."""

    name: str
    source: str
    inputs: tuple[InputSpec, ...]
    keep_weights: bool = True
    take_inits: bool = False


def imported(
    model: nn.Module,
    wish: Wish,
    folder: Path,
    inits: Callable[[], Inits],
    classes: OwnClasses | None = None,
    tell: Tell = lambda _words: None,
    drawn: Callable[[Project], None] | None = None,
) -> Project:
    """Import a model and compare the result with it; tensors are written to `folder`. Raises ModelImportError, OSError,
    WeightsError.

    `inits` returns the known initialisations of the parameters. A part that differs after import is kept as one node of
    its own code, if its class allows that; otherwise the import fails. `drawn` receives the project of a large model
    before the comparison, with a note that says so, and without initialisations.
    """
    apart: dict[str, str] = {}
    parity, path = held.ParityResult(), ""
    probe: Probe = {}
    recorded_inits: Inits | None = None
    while True:
        tell(f"Tracing {wish.name} from its input to its output")
        try:
            project = project_of(
                model, wish.inputs, wish.name, own=classes, apart=apart
            )
        except ModelImportError as error:
            if not apart:
                raise
            raise held.refusal(model, path, parity, str(error)) from error
        analysis = analyse(project.graph, custom_layers.ops_of(project))
        _check_inputs(wish, analysis.source, analysis.runnable)
        project = multi_output.with_chief_loss(project, analysis.source)
        valued: Project | None = None
        if (
            drawn is not None
            and not apart
            and analysis.runnable
            and parameter_count(model) > LARGE
        ):
            valued = _with_values(project, analysis.source, model, wish, folder, tell)
            drawn(_with_comparison_note(valued, held.ParityResult(notes=(UNCHECKED,))))
        recorded_inits = inits() if recorded_inits is None else recorded_inits
        probe = probe or held.probe_of(model, wish.keep_weights)
        parity = held.against(model, analysis, wish.inputs, probe, tell)
        if not parity.repeatable and (apart or classes is None):
            note = f"It was not checked against the model: {parity.differences[0]}."
            parity = held.ParityResult(notes=(*parity.notes, note))
        if not parity.differences:
            valued = valued or _with_values(
                project, analysis.source, model, wish, folder, tell
            )
            project = _with_comparison_note(valued, parity)
            project = _with_reference(project, parity, probe, model, wish, folder)
            return _with_inits(project, analysis.source, recorded_inits, wish)
        path, why = held.part_to_keep(model, parity, apart, classes, tell)
        apart[path] = why


def _check_inputs(wish: Wish, source: Source, runnable: bool) -> None:
    """Raise ModelImportError for inputs that nothing uses: the drawn net does not take them."""
    if runnable and len(source.inputs) < len(wish.inputs):
        used = ", ".join(input_spec.name for input_spec in source.inputs)
        raise ModelImportError(
            f"{wish.name} takes {len(wish.inputs)} inputs, but its outputs depend only on {used or 'none'}; "
            "remove the others from its forward, or give them a default",
            "inputs",
        )


def _with_reference(
    project: Project,
    parity: ParityResult,
    probe: Probe,
    model: nn.Module,
    wish: Wish,
    folder: Path,
) -> Project:
    """Add the model's outputs to a project, in a file that certificates compare with."""
    origin = project.origin
    if origin is None:
        return project
    origin = replace(origin, checked=parity.said)
    if parity.cases:
        state, parameters = (
            model.state_dict(),
            {
                name
                for name, _ in module_tree.named_parameters(
                    model, remove_duplicate=False
                )
            },
        )
        tensors, cases = against_source.packed(
            [case.record(state.keys()) for case in parity.cases]
        )
        kept_values = {
            key: value
            for key, value in state.items()
            if wish.keep_weights or key not in parameters
        }
        facts = {
            "model": origin.model,
            "dtype": parity.dtype,
            "probe": probe,
            "cases": cases,
            "values": against_source.hashes(kept_values),
        }
        if sum(tensor.nbytes for tensor in tensors.values()) <= against_source.LARGEST:
            reference_file = files.keep(
                lambda path: against_source.file_of(path, tensors, facts),
                origin.model,
                folder,
            )
            origin = replace(
                origin, reference=KeptFile(reference_file.path, reference_file.sha256)
            )
        else:
            most = against_source.LARGEST >> 20
            remark = f"No reference was kept for certificates: its inputs and outputs take more than {most} MiB."
            project = replace(project, notes=f"{project.notes}\n{remark}")
    return replace(project, origin=origin)


def _with_inits(project: Project, source: Source, inits: Inits, wish: Wish) -> Project:
    """Note in a project which of its model's initialisations it lacks; or take them over."""
    origin = project.origin
    if origin is None or not inits:
        return project
    with borrowed(0), recording_inits() as notes:
        ours = notes.inits_of(make_module(source))
    lost = model_inits.lost_inits(project, source, inits, ours)
    project = replace(project, origin=replace(origin, inits=lost.inits))
    if wish.take_inits:
        project, lost = (
            model_inits.taken_over(project, lost.inits),
            replace(lost, inits=(), keys=()),
        )
    return replace(project, notes="\n".join(filter(None, (project.notes, f"{lost}"))))


def _with_comparison_note(project: Project, parity: ParityResult) -> Project:
    """Return the project with the result of the comparison in its notes."""
    first, *rest = project.notes.splitlines()
    return replace(
        project,
        notes="\n".join((f"{first} {parity.said}".rstrip(), *rest, *parity.notes)),
    )


def _with_values(
    project: Project,
    source: Source,
    model: nn.Module,
    wish: Wish,
    folder: Path,
    tell: Tell,
) -> Project:
    """Make a project start from the model's weights, and note its origin."""
    state: dict[str, Tensor] = dict(model.state_dict())
    infos = {key: TensorInfo.from_tensor(value) for key, value in state.items()}
    wrong = misfits(infos, state_dicts.net_infos(source))
    state = {key: value for key, value in state.items() if key not in wrong}
    buffers = _unfilled(source, model, state)
    tensors_to_save = (
        state if wish.keep_weights else {key: state[key] for key in buffers}
    )
    start: StartWeights | None = None
    if tensors_to_save:
        tell("Writing its weights" if wish.keep_weights else "Writing its buffers")
        start = files.keep(
            lambda path: save_safetensors(tensors_to_save, path), wish.source, folder
        )
    if wrong:
        some = ", ".join(list(wrong)[:4])
        remark = f"{len(wrong)} tensors of the model are not part of the net and are dropped: {some}."
        project = replace(project, notes=f"{project.notes}\n{remark}")
    weights = KeptFile(start.path, start.sha256) if start is not None else None
    origin = Origin(
        wish.source,
        drawing_digest.digest(project, source),
        weights=weights,
        buffers=buffers,
    )
    project = replace(project, origin=origin)
    return file.with_start(
        project, start if wish.keep_weights else random_start(project)
    )


def _unfilled(
    source: Source, model: nn.Module, state: Mapping[str, Tensor]
) -> tuple[str, ...]:
    """List buffers that the net's code initialises to other values than the model's."""
    with borrowed(0), blank():
        fresh_buffers = dict(
            module_tree.named_buffers(make_module(source), remove_duplicate=False)
        )
    buffers = {
        name for name, _ in module_tree.named_buffers(model, remove_duplicate=False)
    } | fresh_buffers.keys()

    def filled(key: str, value: Tensor) -> bool:
        return (
            key in fresh_buffers
            and fresh_buffers[key].dtype == value.dtype
            and torch.equal(fresh_buffers[key], value)
        )

    return tuple(
        key for key, value in state.items() if key in buffers and not filled(key, value)
    )


# --- The drawing


def project_of(
    model: nn.Module,
    inputs: tuple[InputSpec, ...],
    name: str,
    cancelled: Callable[[], bool] = lambda: False,
    own: OwnClasses | None = None,
    apart: Mapping[str, str] | None = None,
) -> Project:
    """Convert a live model to a project. `own` are the classes of its file, and allow the batch at any dimension; each
    submodule in `apart` becomes one node. Raises ModelImportError.

    The first line of the notes gives the origin, each further one describes a part that was not traced call by call.
    """
    fitting(model.forward, f"{type(model).__name__}.forward", "inputs", *inputs)
    inputs = with_dtypes(model, inputs)
    complete(model, inputs)
    examples = tuple(
        torch.zeros(
            model_input.shape, dtype=getattr(torch, model_input.dtype), device="meta"
        )
        for model_input in inputs
    )
    try:
        drawn = import_module(
            model, examples, catalog(), cancelled=cancelled, own=own, apart=apart
        )
    except (TraceError, DraftError) as error:
        if _NO_STATISTICS in str(error) and all(
            single_sample.shape[:1] == (1,) for single_sample in inputs
        ):
            two = tuple(
                replace(sample_input, shape=(2, *sample_input.shape[1:]))
                for sample_input in inputs
            )
            return project_of(model, two, name, cancelled, own, apart)
        where = line_in(error, own.file.path) if own is not None else ""
        message = (
            f"{error} ({own.file.path.name}{where})" if own and where else str(error)
        )
        raise ModelImportError(message, code_of_trace(error)) from error
    shapes = ", ".join(shape_text(described_input.shape) for described_input in inputs)
    notes = "\n".join(
        (
            f"Imported from {name} with an input of {shapes}.",
            *map(str, drawn.fallbacks),
            *drawn.remarks,
        )
    )
    graphs = (drawn.graph, *(block.graph for block in drawn.blocks.values()))
    files = (
        own.files_of({node.op for graph in graphs for node in graph.nodes.values()})
        if own is not None
        else ()
    )
    project = Project(
        name=name,
        graph=drawn.graph,
        positions=drawn.positions,
        comments=drawn.comments,
        blocks=drawn.blocks,
        layer_files=files,
        notes=notes,
    )
    return (
        project
        if own is None
        else with_batch(project, inputs, own.with_these(catalog()))
    )


def with_batch(
    project: Project, inputs: tuple[InputSpec, ...], ops: Catalog
) -> Project:
    """Return the project with the batch dimension of its inputs where the shapes fit: first, second, or none.

    Unchanged if nothing fits, or if it has no problem.
    """
    ops = with_blocks(ops, project.blocks)
    if not analyse(project.graph, ops).errors:
        return project
    nodes = [node for node in project.graph.nodes.values() if node.op == "input"]
    for batch_dim in (1, None):
        changed = project.graph.nodes
        for node, model_input in zip(nodes, inputs, strict=True):
            sizes = (
                model_input.shape
                if batch_dim is None
                else (
                    model_input.shape[:batch_dim] + model_input.shape[batch_dim + 1 :]
                )
            )
            changed = changed.set(
                node.id,
                replace(
                    node,
                    params=node.params.update({"shape": sizes, "batch": batch_dim}),
                ),
            )
        where = (
            "The inputs have no batch dimension: all sizes are those"
            if batch_dim is None
            else f"The batch dimension is {batch_dim}"
        )
        notes = f"{project.notes}\n{where} of the example inputs."
        other = replace(
            project, graph=replace(project.graph, nodes=changed), notes=notes
        )
        analysis = analyse(other.graph, ops)
        if not analysis.errors and (
            batch_dim is None or "N" in str(analysis.output_type())
        ):  # a batch comes out again
            return other
    return project


def with_dtypes(
    model: nn.Module, inputs: tuple[InputSpec, ...]
) -> tuple[InputSpec, ...]:
    """Return inputs that have a dtype, that of the model's weights where none is given."""
    floats = dtype_of(model)
    return tuple(
        replace(described, dtype=described.dtype or floats) for described in inputs
    )


def complete(model: nn.Module, inputs: tuple[InputSpec, ...]) -> None:
    """Initialise lazy layers by one forward pass. Raises ModelImportError."""
    if not any(
        map(is_lazy, (*module_tree.parameters(model), *module_tree.buffers(model)))
    ):
        return
    try:
        with torch.no_grad():
            model(
                *(
                    torch.zeros(
                        model_input.shape, dtype=getattr(torch, model_input.dtype)
                    )
                    for model_input in inputs
                )
            )
    except Exception as error:  # the model's own words
        reason = f"{type(error).__name__}: {error}"
        raise ModelImportError(
            f"{type(model).__name__} does not accept its input: {reason}",
            "input_not_accepted",
        ) from error
