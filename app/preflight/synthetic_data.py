"""Synthetic data that fit a network: samples of its input shape, with a class per output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.builder.diagnostics.problems import ChooseData, Cure, SetData
from app.builder.literals import DType
from app.builder.value_types import Dim
from app.data.sources import SOURCES
from app.util.formatting import shape_text
from app.util.frozen import FrozenMap

if TYPE_CHECKING:
    from app.builder.results import Analysis
    from app.project.project import Project

KEY = "made.fake"
MOST_NUMBERS = 2**22  # of a sample; 1,000 samples of more would fill the memory


def options_for(project: Project, analysis: Analysis) -> FrozenMap[str, Any] | None:
    """Return the options of synthetic data that fit the net, as far as its shapes are known.

    None if there are none that do: the input is no float32 tensor with the batch in front, or its shape is not known.
    """
    inputs = [node for node in project.graph.nodes.values() if node.op == "input"]
    if len(inputs) != 1:
        return None
    params = inputs[0].params
    shape = params.get("shape")
    if params.get("batch", 0) != 0 or params.get("dtype", DType("float32")) != DType("float32"):
        return None
    if not isinstance(shape, tuple) or not shape or not all(type(size) is int and size > 0 for size in shape):
        return None
    numbers = 1
    for size in shape:
        numbers *= size
    if numbers > MOST_NUMBERS:
        return None
    wanted: dict[str, Any] = {"shape": shape}
    given = analysis.output_type(next((row.output for row in project.training.losses), None))
    options = {option.name: option for option in SOURCES[KEY].options}
    if given is not None and len(given.shape) == 2 and given.shape[0] == Dim(1):
        classes = given.per_sample()
        if classes is not None and not options["classes"].refusal(classes):
            wanted["classes"] = classes
    return FrozenMap({name: value for name, value in wanted.items() if value != options[name].default})


def cures(project: Project, analysis: Analysis) -> tuple[Cure, ...]:
    """Return the cures that change the data and leave the net as it is."""
    choose = Cure("Choose other data …", (ChooseData(""),))
    options = options_for(project, analysis)
    if options is None:
        return (choose,)
    defaults = {option.name: option.default for option in SOURCES[KEY].options}
    shape = shape_text(options.get("shape", defaults["shape"]))
    words = f"Synthetic data {shape}, {options.get('classes', defaults['classes']):,} classes"
    return (choose, Cure(words, tuple(SetData("", name, value) for name, value in _changed(options).items())))


def with_these(project: Project, analysis: Analysis) -> Project | None:
    """Return the project with synthetic data that fit the net; None if none do."""
    options = options_for(project, analysis)
    return None if options is None else replace(project, data=replace(project.data, **_changed(options)))


def _changed(options: FrozenMap[str, Any]) -> dict[str, Any]:
    """Return the fields of the data's configuration that make them synthetic."""
    return {"source": KEY, "path": "", "options": options, "train_transforms": (), "eval_transforms": ()}
