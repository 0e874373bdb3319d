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
from app.builder.plan import OWNING, Plan, Step
from app.builder.results import Inside, StepResult
from app.source.generated import ClassText, InputSpec, Source
from app.util.frozen import FrozenMap


def generate(walk: Plan, results: Mapping[str, StepResult], graph: Graph) -> Source:
    """Generate the source of the live part of a plan, with the lines and the module of every node."""
    root = BlockClass("Net", graph, None, [Inside(walk, results)])
    ordered_classes = block_classes(walk, results, root)
    by_block = {
        block_class.block.name: block_class
        for block_class in ordered_classes
        if block_class.block is not None
    }
    parts = [
        nested_class
        for block_class in ordered_classes
        for nested_class in block_class.with_inner()
    ]
    specs = [step.spec for nested_class in parts for step in nested_class.steps]
    imported = custom.local_names(
        specs,
        reserved_variables() | {block_class.name for block_class in ordered_classes},
    )
    for target_class in ordered_classes:
        target_class.imported = imported
    writers = [ClassWriter(block_class, by_block) for block_class in ordered_classes]
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
        class_name="Net",
        classes=FrozenMap(classes),
        files=custom.files_of(specs),
    )


# Line numbers by node, for the class itself and, by path, for every inlined block.
_Places = dict[Owner, dict[str, list[int]]]


def _append_class(writer: ClassWriter, text: list[str]) -> ClassText:
    """Append the lines of a class to the text, and record those of each node."""
    lines_by_owner: _Places = {(): {step.id: [] for step in writer.steps}}
    for line in writer.write():
        for row in line.text.split("\n"):
            text.append(row)
            for *way, node in dict.fromkeys(line.owners):
                lines_by_owner.setdefault(tuple(way), {}).setdefault(
                    str(node), []
                ).append(len(text))
    lines = FrozenMap(
        {node: tuple(numbers) for node, numbers in lines_by_owner[()].items()}
    )
    return _class_text(writer.made, lines_by_owner, (), lines, writer.modules)


def _class_text(
    block_class: BlockClass,
    lines_by_owner: _Places,
    way: Owner,
    lines: FrozenMap[str, tuple[int, ...]],
    modules: Mapping[str, str],
) -> ClassText:
    """Map lines and attributes of a class, or of an inlined block, to nodes."""
    owning = [step for step in block_class.steps if step.spec.kind in OWNING]
    repeated = frozenset(step.id for step in owning if step.node.repeat > 1)
    modules_of = {step.id: step.module for step in owning}
    by_module = {
        modules_of[node]: _turn_texts(
            turns, lines_by_owner, way, node, lines.get(node, ())
        )
        for node, turns in block_class.inner.items()
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
        repeated=frozenset() if block_class.chain else repeated,
        placed=FrozenMap(placed),
        spread=FrozenMap(
            {node.id: node.repeat for node in block_class.chain if node.repeat > 1}
        ),
    )


def _turn_texts(
    turns: list[BlockClass],
    lines_by_owner: _Places,
    way: Owner,
    node: str,
    instance_lines: tuple[int, ...],
) -> tuple[ClassText, ...]:
    """Map an inlined block for each repetition. `instance_lines` are the lines of its instance, used for nodes in it
    without separate lines."""
    texts: list[ClassText] = []
    for number, turn in enumerate(turns):
        inner = (*way, (node, number))
        if turn.turn < number or (texts and inner not in lines_by_owner):
            texts.append(texts[-1])
            continue
        keys, key, lines = {}, 0, {}
        for child in turn.chain:
            keys[child.id] = str(key)
            lines[child.id] = tuple(
                lines_by_owner.get(inner, {}).get(child.id, instance_lines)
            )
            key += child.repeat
        texts.append(_class_text(turn, lines_by_owner, inner, FrozenMap(lines), keys))
    return tuple(texts)


def _imports(classes: Iterable[BlockClass]) -> list[str]:
    """List the imports that the text needs."""
    written = [
        (block_class, step) for block_class in classes for step in block_class.steps
    ]
    keys = {step.spec.key for _, step in written}
    dtypes = any(
        isinstance(value, DType)
        for block_class, step in written
        for value in _written_values(block_class, step)
    )
    lines = []
    free = any(step.spec.kind in ("parameter", "buffer") for _, step in written)
    if dtypes or free or any(key.startswith("torch.") for key in keys):
        lines.append("import torch")
    if any(key.startswith("F.") for key in keys):
        lines.append("import torch.nn.functional as F")
    if not all(
        block_class.block is None and whole_net(block_class.steps)
        for block_class in classes
    ):
        lines.append("from torch import nn")
    if any(key.startswith("ops.") for key in keys):
        lines.append("from torchvision import ops")
    return lines


def _written_values(block_class: BlockClass, step: Step) -> list[Any]:
    """List the parameter values that appear in the text."""
    if step.spec.kind in ("input", "output", "unknown"):
        return []
    return [
        block_class.results[step.id].resolved.get(param.name)
        for param in step.spec.params
    ]


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
