"""Generation of source from a graph: one class for each block, and the network's.

This text is trained, inspected and exported. It contains only identifiers from `names` and literals that passed
`params.check_param`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.builder.catalog import custom
from app.builder.codegen import tensor_literals
from app.builder.codegen.class_args import BlockClass, block_classes
from app.builder.codegen.class_code import ClassWriter
from app.builder.codegen.constructor_text import Owner
from app.builder.codegen.whole_net import whole_net
from app.builder.expressions import expressions
from app.builder.graph import Graph
from app.builder.literals import DType
from app.builder.names import reserved_variables
from app.builder.plan import Plan, Step
from app.builder.registration import OWNING
from app.builder.results import Inside, StepResult
from app.source.generated import ClassText, InputSpec, Source
from app.util.frozen import FrozenMap


def generate(
    walk: Plan, results: Mapping[str, StepResult], graph: Graph, name: str = "Net"
) -> Source:
    """Generate the source of the live part of a plan, with the lines and the module of every node."""
    root = BlockClass(name, graph, None, [Inside(walk, results)])
    made = block_classes(walk, results, root)
    by_block = {one.block.name: one for one in made if one.block is not None}
    parts = [part for one in made for part in one.with_inner()]
    specs = [step.spec for part in parts for step in part.steps]
    imported = custom.local_names(
        specs, reserved_variables() | {one.name for one in made}
    )
    for one in made:
        one.imported = imported
    writers = [ClassWriter(one, by_block) for one in made]
    text = [*_imports(parts), *custom.import_lines(imported)]
    if any(spec.key == "packed" for spec in specs):
        text = [
            *tensor_literals.IMPORTS,
            "",
            *text,
            "",
            "",
            *tensor_literals.FUNCTION.split("\n"),
        ]
    classes: dict[str, ClassText] = {}
    for writer in writers:
        text += ["", ""]
        block = writer.made.block
        classes[block.name if block else ""] = _append_class(writer, text)
    net = writers[-1]
    return Source(
        text="\n".join(text) + "\n",
        inputs=tuple(
            _input_spec(net, step) for step in net.steps if step.spec.kind == "input"
        ),
        outputs=net.returned,
        ends=net.ends,
        lines=classes[""].lines,
        modules=classes[""].modules,
        class_name=name,
        classes=FrozenMap(classes),
        files=custom.files_of(specs),
    )


# Line numbers by node, for the class itself and, by path, for every inlined block.
_Places = dict[Owner, dict[str, list[int]]]


def _append_class(writer: ClassWriter, text: list[str]) -> ClassText:
    """Append the lines of a class to the text, and record those of each node."""
    places: _Places = {(): {step.id: [] for step in writer.steps}}
    for line in writer.write():
        for part in line.text.split("\n"):
            text.append(part)
            for *way, node in dict.fromkeys(line.owners):
                places.setdefault(tuple(way), {}).setdefault(str(node), []).append(
                    len(text)
                )
    lines = FrozenMap({node: tuple(numbers) for node, numbers in places[()].items()})
    return _class_text(writer.made, places, (), lines, writer.modules)


def _class_text(
    part: BlockClass,
    places: _Places,
    way: Owner,
    lines: FrozenMap[str, tuple[int, ...]],
    modules: Mapping[str, str],
) -> ClassText:
    """Map lines and attributes of a class, or of an inlined block, to nodes."""
    owning = [step for step in part.steps if step.spec.kind in OWNING]
    repeated = frozenset(step.id for step in owning if step.node.repeat > 1)
    modules_of = {step.id: step.module for step in owning}
    by_module = {
        modules_of[node]: _turn_texts(turns, places, way, node, lines.get(node, ()))
        for node, turns in part.inner.items()
    }
    placed = {
        step.id: by_module[step.module] for step in owning if step.module in by_module
    }
    blocks = {
        step.id: step.spec.target
        for step in owning
        if step.spec.kind == "block" and step.id not in placed
    }
    return ClassText(
        lines=lines,
        modules=FrozenMap(modules),
        blocks=FrozenMap(blocks),
        repeated=frozenset() if part.chain else repeated,
        placed=FrozenMap(placed),
        spread=FrozenMap(
            {node.id: node.repeat for node in part.chain if node.repeat > 1}
        ),
    )


def _turn_texts(
    turns: list[BlockClass],
    places: _Places,
    way: Owner,
    node: str,
    whole: tuple[int, ...],
) -> tuple[ClassText, ...]:
    """Map an inlined block for each repetition. `whole` are the lines of its instance, used for nodes in it without
    separate lines."""
    found: list[ClassText] = []
    for number, part in enumerate(turns):
        inner = (*way, (node, number))
        if part.turn < number or (found and inner not in places):
            found.append(found[-1])
            continue
        keys, key, lines = {}, 0, {}
        for child in part.chain:
            keys[child.id] = str(key)
            lines[child.id] = tuple(places.get(inner, {}).get(child.id, whole))
            key += child.repeat
        found.append(_class_text(part, places, inner, FrozenMap(lines), keys))
    return tuple(found)


def _imports(classes: Iterable[BlockClass]) -> list[str]:
    """List the imports that the text needs."""
    written = [(one, step) for one in classes for step in one.steps]
    keys = {step.spec.key for _, step in written}
    dtypes = any(
        isinstance(value, DType)
        for one, step in written
        for value in _written_values(one, step)
    )
    lines = []
    free = any(step.spec.kind in ("parameter", "buffer") for _, step in written)
    if dtypes or free or any(key.startswith("torch.") for key in keys):
        lines.append("import torch")
    if any(key.startswith("F.") for key in keys):
        lines.append("import torch.nn.functional as F")
    if not all(one.block is None and whole_net(one.steps) for one in classes):
        lines.append("from torch import nn")
    if any(key.startswith("ops.") for key in keys):
        lines.append("from torchvision import ops")
    return lines


def _written_values(one: BlockClass, step: Step) -> list[Any]:
    """List the parameter values that appear in the text."""
    if step.spec.kind in ("input", "output", "unknown"):
        return []
    return [one.results[step.id].resolved.get(param.name) for param in step.spec.params]


def _input_spec(net: ClassWriter, step: Step) -> InputSpec:
    resolved = net.results[step.id].resolved
    dtype = resolved.get("dtype", step.spec.params[1].default)
    low, high = resolved.get("low"), resolved.get("high")
    shape = resolved.get("shape", ())
    sizes = (
        shape if isinstance(shape, tuple) and not any(expressions(shape)) else ()
    )  # no file has to keep to that
    return InputSpec(
        net.inputs[step.id], sizes, dtype.name, low, high, resolved.get("batch", 0)
    )
