"""What a model does beside its calls is drawn, kept in a node of its own code, or refused: it is not lost unsaid."""

from __future__ import annotations

import ast
import copy
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from app.builder.analysis import analyse
from app.features.importing import task
from app.features.importing.compute.pipeline import Wish, imported
from app.features.importing.values import ModelImportError
from app.features.importing.values import remarks as remarks_of
from app.project import custom_layers
from app.project import file as project_file
from app.project.project import Project
from app.source.compiled import make_module
from app.sources.spec import InputSpec, SourceSpec
from tests.support import own_code, silent_nets

Make = Callable[[], nn.Module]
SHAPE = (3, 4)
PARTS = ast.parse(TEXT := Path(silent_nets.__file__).read_text()).body
LINES = TEXT.splitlines()
SKIPPED = {
    "Net",
    "Body",
    "Target",
    "Energy",
    "Held",
    "Symmetric",
    "Powered",
    "Backwards",
    "Straight",
    "Scaled",
}
NETS = [
    name
    for name, kind in vars(silent_nets).items()
    if isinstance(kind, type)
    and issubclass(kind, nn.Module)
    and kind.__module__ == silent_nets.__name__
    and name not in SKIPPED
]


@pytest.fixture
def own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_trusted: None
) -> Iterator[Path]:
    """A file of one's own that is trusted for the time of a test."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path / "nets.py"
    sys.modules.pop("nets", None)


def text_of(*roots: str) -> str:
    """The text of some of the nets, with all that they are made of: one file of all takes long to look through."""
    wanted, found = set(roots), set[str]()
    rest = [part for part in PARTS if not isinstance(part, ast.ClassDef)]
    wanted |= {
        word.id
        for part in rest
        for word in ast.walk(part)
        if isinstance(word, ast.Name)
    }
    classes = {part.name: part for part in PARTS if isinstance(part, ast.ClassDef)}
    while new := wanted & classes.keys() - found:
        found |= new
        wanted |= {
            word.id
            for name in new
            for word in ast.walk(classes[name])
            if isinstance(word, ast.Name)
        }
    return "\n\n".join(
        "\n".join(LINES[part.lineno - 1 : part.end_lineno])
        for part in PARTS
        if not isinstance(part, ast.ClassDef) or part.name in found
    )


def seeded(seed: int = 3) -> None:
    torch.default_generator.manual_seed(
        seed
    )  # the devices that are not here would each be told where from
    random.seed(seed)
    numpy.random.seed(seed)


def made(file: Path, name: str) -> nn.Module:
    """What the process that runs a file does first."""
    seeded(0)
    own_code.trust(f"{file}:{name}")
    return task.make_from_file(SourceSpec("file", str(file), name), {})


def drawn(file: Path, model: nn.Module, shape: tuple[int, ...] = SHAPE) -> Project:
    """And what it does then."""
    name = type(model).__name__
    wish = Wish(name, name, (InputSpec(shape),))
    project = imported(model, wish, file.parent, dict, task._own_classes(file))
    return project_file.loads(project_file.dumps(project))


def net_of(project: Project, state: dict[str, torch.Tensor]) -> Make:
    answer = analyse(project.graph, custom_layers.ops_of(project))
    assert not answer.errors, [
        (problem.message, problem.reason) for problem in answer.errors
    ]
    return lambda: with_state(make_module(answer.source), state)


def with_state(net: nn.Module, state: dict[str, torch.Tensor]) -> nn.Module:
    net.load_state_dict(state)
    return net


def leaves(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if not isinstance(value, dict | tuple | list):
        return []
    return [
        leaf
        for item in (value.values() if isinstance(value, dict) else value)
        for leaf in leaves(item)
    ]


def told(net: nn.Module, training: bool, batch: int) -> list[tuple[str, object]]:
    """Outputs, what asks for a gradient, the gradients and the state, at each of three calls."""
    net.train(training)
    found: list[tuple[str, object]] = []
    for call in range(3):
        seeded(call)
        given = torch.randn(batch, *SHAPE[1:], dtype=torch.float64).requires_grad_()
        net.zero_grad()
        try:
            values = leaves(net(given * 1.0))
        finally:
            asked = torch.is_grad_enabled()
            torch.set_grad_enabled(True)
        found += [
            (f"call {call}: gradients", asked),
            (f"call {call}: outputs", len(values)),
        ]
        found += [
            (f"call {call}: output {i}", value.detach().double())
            for i, value in enumerate(values)
        ]
        found += [
            (f"call {call}: output {i} asks", value.requires_grad)
            for i, value in enumerate(values)
        ]
        learnt = [value.square().mean() for value in values if value.requires_grad]
        if learnt:
            sum(learnt).backward()
        found.append((f"call {call}: input.grad", given.grad))
        found += [
            (f"call {call}: {name}.grad", one.grad)
            for name, one in net.named_parameters()
        ]
        found += [
            (f"call {call}: {name}", value.double())
            for name, value in net.state_dict().items()
        ]
    return found


def differing(mine: Make, theirs: Make, batches: tuple[int, ...]) -> list[str]:
    """In what a net differs from its source, in double precision; each is made anew for every look."""
    nets = mine(), theirs()
    order = [list(dict(net.named_parameters())) for net in nets]
    asked = [[one.requires_grad for one in net.parameters()] for net in nets]
    keys = [list(net.state_dict()) for net in nets]
    found = [
        word
        for word, (a, b) in zip(
            ("order", "requires_grad", "keys"), (order, asked, keys), strict=True
        )
        if a != b
    ]
    for training in (True, False):
        for batch in batches:
            rows = [told(net().double(), training, batch) for net in (mine, theirs)]
            where = f"{'train' if training else 'eval'}, batch of {batch}"
            if [name for name, _ in rows[0]] != [name for name, _ in rows[1]]:
                found.append(f"{where}: other facts")
                continue
            found += [
                f"{where}: {name}"
                for (name, a), (_, b) in zip(*rows, strict=True)
                if not same(a, b)
            ]
    return found


def same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and torch.allclose(
            one, other, 1e-9, 1e-12, equal_nan=True
        )
    return one is other or (not isinstance(one, torch.Tensor) and one == other)


def report(
    file: Path, name: str, batches: tuple[int, ...] = (3, 5)
) -> tuple[str, list[str], tuple[str, ...]]:
    if not file.exists():
        file.write_text(text_of(name))
    model = made(file, name)
    state = copy.deepcopy(model.state_dict())
    try:
        project = drawn(file, model)
    except ModelImportError as error:
        return "refused", [], (str(error),)
    kept = any(
        node.op.startswith("custom.")
        for graph in (project.graph, *(b.graph for b in project.blocks.values()))
        for node in graph.nodes.values()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = differing(
            net_of(project, state), lambda: with_state(made(file, name), state), batches
        )
    return "kept" if kept else "drawn", found, remarks_of(project)


# What is said of a part that the comparison with the model found.
DIFFERENT = "drawn call by call it would be a different net"
# By the net: what its import says of the part that is a node of its own code.
KEPT = {
    "ModeByIdentity": DIFFERENT,
    "SetGradInTraining": "it computes something in eval mode that it does not in training",
    "SwitchedOffForGood": "it disables gradients for everything after it",
    "Momentum": DIFFERENT,
    "MomentumByData": "it sets data of a tensor",
    "EnabledInASubmodule": DIFFERENT,
    "InPlaceWithoutGradient": DIFFERENT,
    "AsksForGradMode": DIFFERENT,
    "AsksWhetherItLearns": DIFFERENT,
    "WritesData": "aliases its input, and is changed in place",
    "ReplacesData": "it sets data of a tensor",
    "FrozenRecurrent": "only some of its parameters are trainable",
    "FreezesInForward": "it changes requires_grad of fc.weight",
    "LooseTensorThatLearns": "it uses a trainable tensor that is not a parameter of the model",
    "NoiseNumber": "depends on the values of the data",
    "OwnGenerator": "its own torch.Generator",
    "PythonRandom": "it draws random numbers with Python",
    "PythonChoice": "it draws random numbers with Python",
    "PythonGenerator": DIFFERENT,
    "NumpyRandom": "it draws random numbers with Python",
    "NumpyGenerator": DIFFERENT,
    "StochasticDepth": "depends on the values of the data",
    "StochasticDepthByPython": "it draws random numbers with Python",
    "Seeded": DIFFERENT,
    "SeededInside": DIFFERENT,
    "AttentionDropsAlways": "F.scaled_dot_product_attention applies dropout in eval mode too",
    "TrainDoesMore": "it computes something in eval mode that it does not in training",
    "ModeInArithmetic": "it computes something in eval mode that it does not in training",
    "OnlyInEvaluation": "it computes something in eval mode that it does not in training",
    "Autocast": "it computes under autocast on cpu",
    "AutocastDecorated": "it computes under autocast on cpu",
    "AutocastElsewhere": "it computes under autocast on cuda",
    "TensorHook": "it registers a hook on a value's gradient",
    "TensorHookThatLooks": "it registers a hook on a value's gradient",
    "BackwardPreHook": "it has a backward hook",
    "AccumulateHook": "weight has a gradient hook",
    "Counter": DIFFERENT,
    "Flag": DIFFERENT,
    "GlobalCounter": DIFFERENT,
    "ClassCounter": DIFFERENT,
    "GrowingList": DIFFERENT,
    "GlobalList": DIFFERENT,
    "LastState": DIFFERENT,
    "LastStateInADict": DIFFERENT,
    "CachedNoise": DIFFERENT,
    "CachedWeights": DIFFERENT,
    "BufferSetAtEveryCall": DIFFERENT,
    "Ema": "it computes something in eval mode that it does not in training",
    "EmaByCopy": DIFFERENT,
    "EmaByData": "it sets data of a tensor",
    "EmaByAssignment": "it changes self.ema at every call",
    "EmaByOut": "it writes into a tensor passed as out=",
    "EmaInTheDict": DIFFERENT,
    "CountsCalls": "it changes self.calls at every call",
    "RegistersInForward": DIFFERENT,
    "Projected": DIFFERENT,
    "ReplacedParameter": "it changes self.scale at every call",
    "PlainTensorInPlace": DIFFERENT,
    "WritesIntoAConstant": "it writes into a tensor outside the graph",
    "WritesIntoATable": DIFFERENT,
    "ApplyByName": "Straight has a custom backward",
    "ApplyOnTheClass": "Straight has a custom backward",
    "ApplyAsDefault": "Straight has a custom backward",
    "ApplyInAnAttribute": "Straight has a custom backward",
    "FunctionWithContext": "Scaled has a custom backward",
    "OldSpectralNorm": "its spectral norm changes buffers in training",
    "CheckpointedNorm": DIFFERENT,
    "CheckpointedAtTheInput": DIFFERENT,
    "Functional": "another module reads a tensor of fc",
    "NewestParameter": "Linear was changed after construction",
    "TryExcept": "depends on the values of the data",
    "TryNumber": "depends on the values of the data",
    "OverSamples": DIFFERENT,
    "OverSampleNumbers": DIFFERENT,
    "DividesByBatch": DIFFERENT,
}
# What is kept outside of the model two nets of one process do not have in common with their sources.
ELSEWHERE = {"GlobalCounter", "ClassCounter", "GlobalList", "WritesIntoATable"}
# By the net: what its drawing takes from the example, or leaves out, and says so.
TOLD = {
    "OverSteps": r"Loop over 4 steps \(OverSteps.forward, line \d+ of nets.py\) was unrolled: the network always",
    "ByShape": r"A decision on sizes \(ByShape.forward, line \d+ of nets.py\) was fixed as for 3×4",
    "ByNone": "ByNone.forward was traced with mask=None: the network has no such inputs",
    "AutocastOff": r"A region without autocast \(AutocastOff.forward, line \d+ of nets.py\) is imported without it",
    "Checkpointed": r"A checkpoint \(Checkpointed.forward, line \d+ of nets.py\) is imported as plain calls",
    "CheckpointedByReentry": "A checkpoint .* is imported as plain calls",
    "InputInPlace": "InputInPlace.forward changes x in place",
    "ReturnsMore": "ReturnsMore.forward gives None, 3 besides its tensors",
}
REFUSED = {
    "TakesAnyNumber": "depends on the values of the data",
    "Closure": "would be a different net",
}
DRAWN = [
    name
    for name in NETS
    if name not in KEPT and name not in TOLD and name not in REFUSED
]


@pytest.mark.parametrize("name", DRAWN)
def test_a_model_is_drawn_as_the_net_that_it_is(name: str, own: Path) -> None:
    kind, found, said = report(own, name)
    assert (kind, found) == ("drawn", []), said


@pytest.mark.parametrize("name", TOLD)
def test_what_a_drawing_takes_from_its_example_is_told(name: str, own: Path) -> None:
    kind, found, said = report(own, name)
    assert (kind, found) == ("drawn", []), said
    assert any(re.match(TOLD[name], remark) for remark in said), said


@pytest.mark.parametrize("name", KEPT)
def test_what_no_drawing_says_is_kept_in_a_node_of_its_own_code(
    name: str, own: Path
) -> None:
    kind, found, said = report(own, name)
    assert kind == "kept" and (not found or name in ELSEWHERE), (found, said)
    where = rf"\({name}|\((Linear|Momentum\.follow|Target|Energy|looked_at)|gradient"
    assert re.search(KEPT[name], said[0]) and re.search(where, said[0]), said


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_neither_is_refused_with_the_reason_and_the_line(
    name: str, own: Path
) -> None:
    kind, _, said = report(own, name)
    assert (
        kind == "refused" and re.search(REFUSED[name], said[0]) and "line " in said[0]
    )


@pytest.mark.parametrize(
    "name",
    ["Counter", "PythonRandom", "LastState", "SwitchedOffForGood", "Autocast", "Flag"],
)
def test_of_a_larger_model_only_the_part_that_does_more_is_a_node_of_its_own_code(
    name: str, own: Path
) -> None:
    own.write_text(text_of("Net", "Body", name) + LARGER.format(part=name))
    kind, found, said = report(own, "Larger")
    assert (kind, found) == ("kept", []), said
    assert [remark.partition(" ")[0] for remark in said] == ["part"], said


LARGER = """

class Larger(Net):
    def __init__(self):
        super().__init__()
        self.part, self.head = {part}(), Body()

    def forward(self, x):
        return self.head(self.part(self.fc(x)))
"""
