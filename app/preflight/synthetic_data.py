"""Synthetic data that fit a network: samples of its inputs' shapes, with targets of its outputs' shapes."""

from __future__ import annotations

from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from app.builder.diagnostics.problems import ChooseData, Cure, SetData, SetTraining
from app.builder.literals import DType
from app.builder.value_types import Dim, TensorType
from app.data.sources import SOURCES, DataError, spec_of
from app.data.spec import CLASSES, TOKENS, VALUES, FieldInfo, TargetInfo
from app.data.synthetic_fields import (
    DTYPES,
    MOST_CLASSES,
    SyntheticField,
    parse_targets,
    target_text,
    text_of,
)
from app.preflight import multi_output
from app.training.choices import CLASS_IDS, LOSSES
from app.training.config import INPUT
from app.util.formatting import counted, shape_text
from app.util.frozen import FrozenMap
from app.util.language import tr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.builder.graph import Node
    from app.builder.results import Analysis
    from app.data.config import DataConfig
    from app.project.project import Project
    from app.sources.opened import OpenedModel

NOISE, FIELDS = "made.fake", "made.fields"
MOST_NUMBERS = 2**22  # of a sample; 1,000 samples of more would fill the memory


class SyntheticData(Struct, frozen=True):
    """A source of synthetic data and the options with which it fits a net."""

    source: str
    options: FrozenMap[str, Any]

    @property
    def edits(self) -> dict[str, Any]:
        """The fields of the data's configuration that make them synthetic."""
        return {
            "source": self.source,
            "path": "",
            "options": self.options,
            "train_transforms": (),
            "eval_transforms": (),
        }

    @property
    def sizes(self) -> str:
        """What they hold, such as "1×9×9, 7 classes"."""
        options = {
            option.name: option.default for option in SOURCES[self.source].options
        } | dict(self.options)
        if self.source == NOISE:
            return f"{shape_text(options['shape'])}, {counted(options['classes'], 'class', 'classes')}"
        targets = parse_targets(options["targets"])
        return f"{options['fields']}, {'; '.join(map(target_text, targets))}"


def fitting(project: Project, analysis: Analysis) -> SyntheticData | None:
    """Return synthetic data that fit the net, as far as its shapes are known.

    None if there are none that do: an input has not the batch in front, or its shape or dtype cannot be generated.
    """
    if project.opened is not None:
        return _synthetic_data(
            project,
            _arguments(project.opened),
            partial(_targets_of, project, project.opened),
        )
    order = {spec.name: index for index, spec in enumerate(analysis.source.inputs)}
    inputs = [node for node in project.graph.nodes.values() if node.op == "input"]
    inputs.sort(key=lambda node: order.get(node.name, len(order)))
    fields = [_field(node, project) for node in inputs]
    return _synthetic_data(project, fields, partial(_targets, project, analysis))


def _synthetic_data(
    project: Project,
    fields: Sequence[SyntheticField | None],
    targets_of: Callable[[], tuple[TargetInfo, ...]],
) -> SyntheticData | None:
    """Return synthetic data with these fields and their targets, which may be large; None if there are none."""
    available = [field for field in fields if field is not None]
    numbers = sum(_product(field.info.shape) for field in available)
    if not fields or len(available) < len(fields) or numbers > MOST_NUMBERS:
        return None
    targets = targets_of()
    if (
        len(available) == 1
        and available[0].info.dtype == "float32"
        and available[0].info.shape
        and _plain(targets)
    ):
        options: dict[str, Any] = {"shape": available[0].info.shape}
        if targets and not _option(NOISE, "classes").refusal(len(targets[0].classes)):
            options["classes"] = len(targets[0].classes)
        return SyntheticData(NOISE, _changed(NOISE, options))
    options = {"fields": text_of(available)}
    if targets:
        options["targets"] = "; ".join(map(target_text, targets))
    synthetic = SyntheticData(FIELDS, _changed(FIELDS, options))
    try:
        spec_of(replace(project.data, **synthetic.edits))
    except DataError:  # such as two inputs of one name, or classes without end
        return None
    return synthetic


def _arguments(opened: OpenedModel) -> list[SyntheticField | None]:
    """Return the arguments of the call that an opened model was observed in; None for one that cannot be generated."""
    return [
        SyntheticField(FieldInfo(argument.name, argument.shape[1:], argument.dtype))
        if argument.shape
        and argument.dtype in DTYPES
        and not argument.way.startswith("[*][")  # boxes are no noise
        else None
        for argument in opened.given
    ]


def _targets_of(project: Project, opened: OpenedModel) -> tuple[TargetInfo, ...]:
    """Return the target of an opened model's main output, as its shape was in that call."""
    chief = opened.interface.chief
    if chief is None or len(chief.shape) < 2 or not 0 < chief.shape[-1] <= MOST_CLASSES:
        return ()
    target = _target_of(
        chief.shape[1:], LOSSES.get(project.training.loss.name) == CLASS_IDS
    )
    return (target,)


def cures(project: Project, analysis: Analysis) -> tuple[Cure, ...]:
    """Return the cures that replace the data and leave the net as it is; random noise is the last of them."""
    choose = Cure(tr("Choose other data…"), (ChooseData(""),), replaces=True)
    synthetic = fitting(project, analysis)
    if synthetic is None:
        return (choose,)
    edits: list[Any] = [
        SetData("", name, value) for name, value in synthetic.edits.items()
    ]
    fitted = with_these(project, analysis)
    if fitted is not None and fitted.training != project.training:
        edits.append(SetTraining("", "losses", fitted.training.losses))
        edits.append(SetTraining("", "inputs", fitted.training.inputs))
    if project.data.source in (NOISE, FIELDS):
        return (
            Cure(
                tr("Fit the synthetic data to {sizes}", sizes=synthetic.sizes),
                tuple(edits),
            ),
            choose,
        )
    label = tr("Replace {data} by random noise", data=_data_name(project.data))
    return (choose, Cure(label, tuple(edits), replaces=True))


def _data_name(data: DataConfig) -> str:
    """Return what a cure calls the data that it replaces."""
    if data.path:
        return tr("{name}, which you chose,", name=PurePath(data.path).name)
    source = SOURCES.get(data.source)
    return source.label.removesuffix("…") if source is not None else data.source


def with_these(project: Project, analysis: Analysis) -> Project | None:
    """Return the project with synthetic data that fit the net, and with losses for them; None if none do."""
    synthetic = fitting(project, analysis)
    if synthetic is None:
        return None
    fitted = replace(project, data=replace(project.data, **synthetic.edits))
    if synthetic.source == NOISE:
        return fitted
    spec, losses = spec_of(fitted.data), project.training.losses
    if len(multi_output.outputs_of(project, analysis)) > 1 and not losses:
        losses = multi_output.suggested(fitted, analysis, spec)
    return replace(
        fitted, training=replace(project.training, losses=losses, inputs=FrozenMap())
    )


def _field(node: Node, project: Project) -> SyntheticField | None:
    """Return the field for an input node; None if it cannot be generated."""
    params = node.params
    shape, dtype = params.get("shape"), params.get("dtype", DType("float32")).name
    if (
        params.get("batch", 0) != 0
        or dtype not in DTYPES
        or not isinstance(shape, tuple)
    ):
        return None
    if not all(type(size) is int and size > 0 for size in shape):
        return None
    rows = [
        embedding.params.get("num_embeddings")
        for embedding in project.graph.nodes.values()
        if embedding.op == "nn.Embedding"
    ]  # indices above the smallest would be out of range somewhere
    bounds = [count for count in rows if type(count) is int and count > 0]
    return SyntheticField(FieldInfo(node.name, shape, dtype), min(bounds, default=2))


def _targets(project: Project, analysis: Analysis) -> tuple[TargetInfo, ...]:
    """Return a target for each loss, as far as the shapes of the outputs are known."""
    ends = {end.name: end for end in multi_output.outputs_of(project, analysis)}
    rows = project.training.losses
    if rows:
        target_ends = {
            row.target: (ends.get(row.output), row.loss)
            for row in rows
            if row.target != INPUT
        }
        named = [(name, end, loss) for name, (end, loss) in target_ends.items()]
    else:
        loss = project.training.loss
        named = [
            (name if len(ends) > 1 else "", end, loss)
            for name, end in ends.items()
            if end.always
        ]
    targets = [
        (name, _target(end.type, LOSSES.get(loss.name) == CLASS_IDS))
        for name, end, loss in named
        if end
    ]
    return tuple(
        replace(target, name=name) for name, target in targets if target is not None
    )


def _target(output: TensorType | None, ids: bool) -> TargetInfo | None:
    """Return the target of an output (N, ...); with class ids if its loss takes those."""
    if output is None or len(output.shape) < 2 or output.shape[0] != Dim(1):
        return None
    sizes = tuple(
        size for size in output.shape[1:] if isinstance(size, int) and size > 0
    )
    if len(sizes) < len(output.shape) - 1:
        return None
    return _target_of(sizes, ids)


def _target_of(sizes: tuple[int, ...], ids: bool) -> TargetInfo:
    """Return the target of an output whose samples have these sizes."""
    classes = tuple(map(str, range(sizes[-1])))
    if len(sizes) == 1:
        return TargetInfo("", CLASSES, classes)
    return (
        TargetInfo("", TOKENS, classes, sizes[:-1])
        if ids
        else TargetInfo("", VALUES, (), sizes)
    )


def _plain(targets: Sequence[TargetInfo]) -> bool:
    """Return whether these are what `NOISE` provides: one class a sample, or nothing that is known."""
    return not targets or (len(targets) == 1 and targets[0].task == CLASSES)


def _changed(source: str, options: dict[str, Any]) -> FrozenMap[str, Any]:
    return FrozenMap(
        {
            name: value
            for name, value in options.items()
            if value != _option(source, name).default
        }
    )


def _option(source: str, name: str) -> Any:
    return next(option for option in SOURCES[source].options if option.name == name)


def _product(sizes: Sequence[int]) -> int:
    numbers = 1
    for size in sizes:
        numbers *= size
    return numbers
