"""In-place changes that backward would fail at: found before it runs, with the line and a cure that works."""

from __future__ import annotations

import gc
import linecache
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from app.autograd.batch import TrainingBatch, compile_batch
from app.autograd.diagnostics.findings import find_all
from app.autograd.diagnostics.inplace_changes import (
    BrokenNode,
    WriteWatcher,
    find_broken,
)
from app.autograd.diagnostics.results import Finding
from app.autograd.walk import short_name, walk
from app.source.generated import InputSpec, Source
from app.util.frozen import FrozenMap
from tests.support.autograd_tapes import SOURCE

START = "w = torch.tensor([0.3, -0.7, 1.1], requires_grad=True)"


def ran(text: str) -> tuple[list[BrokenNode], bool, str]:
    """Run the lines; what was found before backward, whether a CopySlices was made, what torch raised in backward."""
    name = f"<lines {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    values: dict[str, Any] = {"torch": torch, "F": F}
    watcher = WriteWatcher()
    with watcher:
        exec(compile(text, name, "exec"), values)
    loss = values["loss"]
    nodes = walk([loss])[0]
    found, hidden = (
        watcher.broken(nodes),
        any(short_name(node) == "CopySlices" for node in nodes),
    )
    watcher.forget()
    try:
        loss.backward()
    except RuntimeError as error:
        return found, hidden, str(error)
    return found, hidden, ""


def program(*lines: str) -> str:
    return "\n".join((START, *lines))


CASES = [
    (("h = w.sigmoid()", "h.add_(1)", "loss = h.sum()"), 3, "h = h.clone().add_(1)"),
    (("h = w.exp()", "h += 1", "loss = h.sum()"), 3, "h = h.clone()\nh += 1"),
    (
        ("h = w * 1", "z = h * h", "h[0] = 3.0", "loss = z.sum()"),
        4,
        "h = h.clone()\nh[0] = 3.0",
    ),
    (
        ("h = w * 1", "z = h * h", "h[1:].mul_(2)", "loss = z.sum() + h.sum()"),
        4,
        "h = h.clone()\nh[1:].mul_(2)",
    ),
    (
        ("h = w.tanh()", "y = torch.relu_(h)", "loss = y.sum()"),
        3,
        "y = torch.relu_(h.clone())",
    ),
    (
        ("h = w.tanh()", "y = F.relu(h, inplace=True)", "loss = y.sum()"),
        3,
        "y = F.relu(h.clone(), inplace=True)",
    ),
    (
        ("h = w.exp()", "v = h[1:]", "v.mul_(2)", "loss = h.sum()"),
        2,
        "h = w.exp().clone()",
    ),
    (
        ("h = w.exp()", "h.data.mul_(2)", "loss = h.sum()"),
        3,
        "h = h.clone()\nh.data.mul_(2)",
    ),
]


@pytest.mark.parametrize(("lines", "at", "after"), CASES)
def test_the_line_is_named_and_the_cure_works(
    lines: tuple[str, ...], at: int, after: str
) -> None:
    text = program(*lines)
    found, _, error = ran(text)
    assert len({broken.node for broken in found}) == 1
    broken, write = found[0], found[0].writes[0]
    assert bool(error) is not broken.silent
    assert broken.silent is ("data" in text)
    if not broken.silent:
        assert (
            f"is at version {broken.version_now}; expected version {broken.version}"
            in error
        )
    assert (
        write.location.line is not None
        and write.location.code == text.splitlines()[write.location.line - 1]
    )
    assert f"{write.location.op} at line {write.location.line}" in broken.sentence
    cure = broken.cure
    assert cure is not None and (cure.line, cure.after) == (at, after)
    assert cure.before == text.splitlines()[at - 1]
    mended = text.splitlines()
    mended[at - 1] = cure.after
    left, _, error = ran("\n".join(mended))
    assert not left and not error


@pytest.mark.parametrize(
    "lines",
    [
        ("h = w * 1", "h.add_(1)", "loss = h.sum()"),
        ("h = (w * 1).relu_()", "loss = h.sum()"),
        ("h = torch.zeros(3)", "h[0] = w[0]", "loss = h.exp().sum()"),
        ("h = w.exp()", "g = h.clone()", "g.mul_(2)", "loss = (h + g).sum()"),
        ("a = torch.zeros(3)", "a.data.add_(1)", "loss = (w * a).sum()"),
    ],
)
def test_writes_that_do_no_harm_are_not_told(lines: tuple[str, ...]) -> None:
    found, _, error = ran(program(*lines))
    assert not found and not error


def test_a_silent_write_gives_a_wrong_gradient() -> None:
    found, _, error = ran(program("h = w.exp()", "h.data[0] = 9.0", "loss = h.sum()"))
    assert [broken.silent for broken in found] == [True] and not error
    assert (
        "writes through .data into" in found[0].sentence
        and "the gradient is silently wrong" in found[0].sentence
    )
    assert found[0].version == found[0].version_now == 0 and found[0].writes[0].view


def test_writes_in_a_loop_and_by_several_are_counted() -> None:
    found, _, _ = ran(
        program(
            "h = w.exp()",
            "for i in range(3):",
            "    h += i",
            "h.mul_(2)",
            "loss = h.sum()",
        )
    )
    assert [(write.location.op, write.count) for write in found[0].writes] == [
        ("add_", 3),
        ("mul_", 1),
    ]
    assert (found[0].version, found[0].version_now) == (0, 4)
    assert (
        "add_ at line 4" in found[0].sentence
        and "(3 times) and mul_ at line 5" in found[0].sentence
    )


LINES = [
    "h = h * 2",
    "h = h.exp()",
    "h = h.sigmoid()",
    "h.add_(1)",
    "h += h.detach()",
    "h[0] = 1.0",
    "h.mul_(w)",
    "h = h + k",
    "k = h.clone()",
    "k = h",
    "k.sub_(1)",
    "h = h[:]",
    "h.relu_()",
    "k = k * h",
    "h.data.mul_(2)",
    "h.zero_()",
    "h = F.relu(h, inplace=True)",
    "h.copy_(k)",
]


@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=8))
def test_what_is_found_is_what_torch_raises(lines: list[str]) -> None:
    text = program("h = w * 1", "k = w + 1", *lines, "loss = (h * k).sum()")
    found, hidden, error = ran(text)
    loud = [broken for broken in found if not broken.silent]
    raised = "modified by an inplace operation" in error
    assert raised or not loud, (text, found, error)
    # A write through a view puts its node into a CopySlices, which shows it to nobody.
    assert loud or not raised or hidden, (text, error)
    assert all(broken.writes for broken in found)


def test_a_custom_function_may_write_to_its_own() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            y.mul_(x)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return 2 * grad * ctx.saved_tensors[0]

    w = torch.ones(3, requires_grad=True)
    with WriteWatcher() as watcher:
        x = w * 1
        y = Square.apply(x)
    assert not watcher.broken(walk([y])[0])
    with WriteWatcher() as watcher:
        x = w * 1
        y = Square.apply(x)
        with torch.no_grad():
            x.add_(1)
    found = watcher.broken(walk([y])[0])
    assert [(broken.name, broken.saved, broken.version_now) for broken in found] == [
        ("SquareBackward", "saved_tensors[0]", 1)
    ]


class Net(nn.Module):
    def __init__(self, inplace: bool = True) -> None:
        super().__init__()
        self.fc, self.sig, self.act, self.bn = (
            nn.Linear(4, 4),
            nn.Sigmoid(),
            nn.ReLU(inplace),
            nn.BatchNorm1d(4),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn(self.bn(self.fc(x)))
        return self.act(self.sig(x))


def test_a_layer_with_inplace_is_named() -> None:
    x, y = torch.randn(3, 4), torch.tensor([0, 1, 2])
    found = find_broken(TrainingBatch(Net(), (x,), nn.CrossEntropyLoss(), y))
    first = found.first
    assert "expected version 0" in found.error
    assert len(found.broken) == 1 and first is not None
    assert (first.name, first.place.layer, first.saved) == (
        "SigmoidBackward0",
        "sig",
        "result",
    )
    assert (
        first.writes[0].location.layer == "act"
        and found.tape.nodes[first.node].name == first.name
    )
    assert (
        first.cure is not None
        and first.cure.after == "return self.act(self.sig(x).clone())"
    )
    assert not find_broken(
        TrainingBatch(Net(False), (x,), nn.CrossEntropyLoss(), y)
    ).broken


def test_the_lines_are_those_of_the_generated_text() -> None:
    text = SOURCE.text.replace("        x = x + y\n", "        y += x\n").replace(
        "x.flatten", "y.flatten"
    )
    source = Source(
        text, (InputSpec("x", (1, 8, 8)),), ("out",), SOURCE.lines, SOURCE.modules
    )
    subject = compile_batch(
        source,
        torch.ones(3, 1, 8, 8),
        torch.tensor([1, 2, 3]),
        nn.CrossEntropyLoss(),
        0,
    )
    first = find_broken(subject).first
    assert first is not None and (first.name, first.place.node, first.place.line) == (
        "ReluBackward0",
        "n2",
        13,
    )
    write = first.writes[0]
    assert (write.location.node, write.location.line, write.location.file) == (
        "n3",
        14,
        "",
    )
    assert first.cure is not None and first.cure.after == "y = y.clone()\ny += x"
    lines = text.splitlines()
    lines[13:14] = [" " * 8 + line for line in first.cure.after.splitlines()]
    mended = Source(
        "\n".join(lines) + "\n",
        source.inputs,
        source.outputs,
        FrozenMap(),
        source.modules,
    )
    again = compile_batch(
        mended,
        torch.ones(3, 1, 8, 8),
        torch.tensor([1, 2, 3]),
        nn.CrossEntropyLoss(),
        0,
    )
    assert not find_broken(again).broken and not find_broken(again).error


def test_a_parameter_changed_before_backward_waits_for_it() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * self.w.exp() * self.w
            with torch.no_grad():
                self.w.add_(1)
            return y

    found = find_broken(TrainingBatch(Steps(), (torch.ones(3, requires_grad=True),)))
    assert {broken.writes[0].parameter for broken in found.broken} == {"w"}
    assert (
        found.broken[0].cure is not None
        and "after backward()" in found.broken[0].cure.sentence
    )


def test_a_checkpointed_part_runs_again_in_backward_alone_and_nothing_is_kept() -> None:
    seen: list[Any] = []

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.runs = nn.Linear(4, 4), 0

        def part(self, x: torch.Tensor) -> torch.Tensor:
            self.runs += 1
            seen.append(weakref.ref(x))
            return self.fc(x).exp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.part, x * 2, use_reentrant=False).exp_()

    model = Part()
    assert not find_broken(TrainingBatch(model, (torch.randn(3, 4),))).broken
    assert model.runs == 2
    gc.collect()
    assert seen[0]() is None


class Replaced(nn.Module):
    """A scale whose `.data` is set after it was used: by a product with itself, or with a view of it."""

    def __init__(self, view: bool, before: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale, self.view, self.before = (
            nn.Parameter(torch.rand(4, 4)),
            view,
            before,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.before:
            self.scale.data = self.scale.data / 2
            return x @ self.scale
        h = x.requires_grad_() * 1
        y = h @ self.scale.t() if self.view else h * self.scale
        self.scale.data = self.scale.data * 3
        return y


def silent(model: nn.Module) -> list[Finding]:
    batch = TrainingBatch(
        model, (torch.ones(4, 4),), lambda output, _target: output.sum()
    )
    return [each for each in find_all(batch).found if each.kind == "silent"]


def test_data_that_is_set_after_it_was_saved_is_told_with_its_effect() -> None:
    (read,) = silent(Replaced(view=False))
    assert (
        read.severity == "error" and "scale is replaced through .data" in read.sentence
    )
    assert "Backward reads the new values" in read.sentence and read.line is not None
    (unread,) = silent(Replaced(view=True))
    assert (
        unread.severity == "warning"
        and "The gradient is that of the values before" in unread.sentence
    )
    assert silent(Replaced(view=False, before=True)) == [], "set before it is used"
    for view, factor in ((False, 3), (True, 1)):  # torch itself
        model, x = Replaced(view), torch.ones(4, 4, requires_grad=True)
        first = model.scale.detach().clone()
        model(x).sum().backward()
        used = first if not view else first.sum(0).expand(4, 4)
        assert torch.allclose(x.grad, factor * used)  # type: ignore[arg-type]


def test_data_that_forward_sets_is_as_before_after_a_capture() -> None:
    model = Replaced(view=True)
    first = model.scale.detach().clone()
    TrainingBatch(
        model, (torch.ones(4, 4),), lambda output, _target: output.sum()
    ).hold().release()
    assert torch.equal(model.scale, first)
