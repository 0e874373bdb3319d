"""The drawing as the text of classes that a careful person would write: one for each block, and the network's.

The text is what is trained, inspected and exported. Only identifiers made by `names` and literals that passed
`params.check_param` are written into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.builder import custom
from app.builder.class_args import OWNING, BlockClass, block_classes
from app.builder.class_code import ClassWriter
from app.builder.graph import Graph
from app.builder.literals import DType
from app.builder.names import reserved_variables
from app.builder.plan import Plan, Step
from app.builder.shapes import Inside, StepResult
from app.frozen import FrozenMap
from app.source import ClassText, InputSpec, Source


def generate(walk: Plan, results: Mapping[str, StepResult], graph: Graph, name: str = "Net") -> Source:
    """The source of the live part of a plan, with the lines and the module of every node."""
    root = BlockClass(name, graph, None, [Inside(walk, results)])
    made = block_classes(walk, results, root)
    by_block = {one.block.name: one for one in made if one.block is not None}
    specs = [step.spec for one in made for step in one.steps]
    imported = custom.local_names(specs, reserved_variables() | {one.name for one in made})
    for one in made:
        one.imported = imported
    writers = [ClassWriter(one, by_block) for one in made]
    text = [*_imports(made), *custom.import_lines(imported)]
    classes: dict[str, ClassText] = {}
    for writer in writers:
        text += ["", ""]
        block = writer.made.block
        classes[block.name if block else ""] = _placed(writer, text)
    net = writers[-1]
    return Source(
        text="\n".join(text) + "\n",
        inputs=tuple(_input_spec(net, step) for step in net.steps if step.spec.kind == "input"),
        outputs=tuple(net.outputs.values()),
        lines=classes[""].lines,
        modules=classes[""].modules,
        class_name=name,
        classes=FrozenMap(classes),
        files=custom.files_of(specs),
    )


def _placed(writer: ClassWriter, text: list[str]) -> ClassText:
    """Put the lines of a class behind the text, and tell where each node's are."""
    places: dict[str, list[int]] = {step.id: [] for step in writer.steps}
    for line in writer.write():
        for part in line.text.split("\n"):
            text.append(part)
            for node in line.nodes:
                places.setdefault(node, []).append(len(text))
    owning = [step for step in writer.steps if step.spec.kind in OWNING]
    return ClassText(
        lines=FrozenMap({node: tuple(numbers) for node, numbers in places.items()}),
        modules=FrozenMap(writer.modules),
        blocks=FrozenMap({step.id: step.spec.target for step in owning if step.spec.kind == "block"}),
        repeated=frozenset(step.id for step in owning if step.node.repeat > 1),
    )


def _imports(classes: Iterable[BlockClass]) -> list[str]:
    """What the text uses, and nothing else."""
    written = [(one, step) for one in classes for step in one.steps]
    keys = {step.spec.key for _, step in written}
    dtypes = any(isinstance(value, DType) for one, step in written for value in _written_values(one, step))
    lines = []
    free = any(step.spec.kind in ("parameter", "buffer") for _, step in written)
    if dtypes or free or any(key.startswith("torch.") for key in keys):
        lines.append("import torch")
    if any(key.startswith("F.") for key in keys):
        lines.append("import torch.nn.functional as F")
    return [*lines, "from torch import nn"]


def _written_values(one: BlockClass, step: Step) -> list[Any]:
    """Values of parameters that stand in the text."""
    if step.spec.kind in ("input", "output", "unknown"):
        return []
    return [one.results[step.id].resolved.get(param.name) for param in step.spec.params]


def _input_spec(net: ClassWriter, step: Step) -> InputSpec:
    resolved = net.results[step.id].resolved
    dtype = resolved.get("dtype", step.spec.params[1].default)
    low, high = resolved.get("low"), resolved.get("high")
    return InputSpec(net.inputs[step.id], tuple(resolved.get("shape", ())), dtype.name, low, high)
