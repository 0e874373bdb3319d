"""All detectives asked at once: each kind of trouble is one row with its place and its cure, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from app.autograd.batch import TrainingBatch
from app.autograd.diagnostics.findings import LOOKED_FOR, STAGES, find_all
from app.autograd.diagnostics.report import of_findings
from app.autograd.diagnostics.results import Finding, looked_for
from app.autograd.sparse import parts_of
from app.cli import console
from app.observe.observe import observe

Y = torch.tensor([0, 1, 1])


def subject(
    model: nn.Module, x: torch.Tensor | None = None, seed: int = 0
) -> TrainingBatch:
    given = (
        torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        if x is None
        else x
    )
    return TrainingBatch(model, (given,), nn.CrossEntropyLoss(), Y)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def kinds(found: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(one.kind, one.title) for one in found]


def test_a_sound_net_has_nothing_to_be_said_of() -> None:
    said: list[str] = []
    report = find_all(subject(net()), said.append)
    assert (
        report.found == ()
        and not report.cancelled
        and len(said) == len(STAGES)
        and looked_for() == LOOKED_FOR
    )
    assert report.ladder is not None and [
        rung.title for rung in report.ladder.rungs
    ] == ["2", "1", "0"]
    assert report.paths is not None and {one.state for one in report.of_layer("0")} == {
        "flows"
    }


def test_a_frozen_layer_is_one_row() -> None:
    model = net()
    model[0].requires_grad_(False)
    report = find_all(subject(model))
    (one,) = report.found
    assert (one.kind, one.severity, one.title) == (
        "none",
        "info",
        "0",
    ) and "0.weight is frozen" in one.sentence
    assert "So is bias." in one.sentence and "requires_grad_()" in one.cure
    assert [answer.parameter for answer in report.of_layer("0")] == [
        "0.weight",
        "0.bias",
    ]


class Spoiled(nn.Module):
    def __init__(self, silent: bool) -> None:
        super().__init__()
        self.fc, self.silent = nn.Linear(4, 2), silent

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.fc(x).sigmoid()
        if self.silent:
            h.data.mul_(2)
            return h
        h.mul_(2)
        return h


def test_an_in_place_change_is_found_before_backward_is_run() -> None:
    report = find_all(subject(Spoiled(False)))
    assert report.found[0].kind == "in place" and report.found[0].severity == "error"
    assert report.found[0].tape_node is not None and ".clone()" in report.found[0].after
    assert report.found[0].line == Spoiled.forward.__code__.co_firstlineno + 5
    assert report.ladder is None, "backward is not run where it would fail"


def test_a_silent_write_is_found() -> None:
    assert find_all(subject(Spoiled(True))).found[0].kind == "silent"


def test_values_that_are_not_finite_are_found_both_ways() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.fc(x) * 0).sqrt() * 0

    found = find_all(subject(Root())).found
    assert ("non-finite", "the network") in kinds(
        found
    ) and "In the backward pass" in found[0].sentence
    forward = find_all(subject(net(), torch.full((3, 4), float("nan")))).found
    assert "In the forward pass" in forward[0].sentence


def test_a_gradient_that_vanishes_and_units_that_are_dead() -> None:
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()) for _ in range(12)),
        nn.Linear(4, 2),
    )
    (one,) = (one for one in find_all(subject(model)).found if one.kind == "vanishes")
    assert "less than 0.001" in one.sentence and one.tape_node is not None
    dead = net()
    dead[1] = nn.ReLU()
    with torch.no_grad():
        dead[0].bias.fill_(-100)
    found = find_all(subject(dead)).found
    assert ("dead", "1") in kinds(found) and ("zero", "0") in kinds(found)
    assert sum(one.kind == "dead" for one in found) == 1, (
        "the weights beside a dead unit are not told of again"
    )


class Many(nn.Module):
    """Eight layers that are cut at one line, of which each is told of once."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(8)])
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x).detach()
        return self.head(x)


def test_findings_of_one_cause_are_one_that_names_the_layers() -> None:
    (one,) = find_all(replace(subject(Many()), own_lines=True)).found
    assert one.title == "layers.0 and 7 more" and [
        each.title for each in one.others
    ] == [f"layers.{number}" for number in range(1, 8)]
    assert "The same is found in 7 other places: layers.1; layers.2" in one.sentence
    assert one.line is not None and "detach()" in one.sentence
    frozen = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)), nn.Linear(4, 2))
    frozen[:6].requires_grad_(False)
    assert [each.title for each in find_all(subject(frozen)).found] == [
        "0 and 5 more"
    ], "the cause has no line"


def test_a_net_that_does_not_run_and_one_without_a_graph_are_told() -> None:
    frozen = net().requires_grad_(False)
    found = find_all(subject(frozen)).found
    assert found[0].kind == "failed" and ("none", "0 and 2") in kinds(found)


def test_it_ends_between_two_looks() -> None:
    said: list[str] = []
    report = find_all(subject(Spoiled(True)), said.append, lambda: len(said) > 2)
    assert report.cancelled and [one.kind for one in report.found] == ["silent"], (
        "what was found until then"
    )
    assert report.paths is None and report.ladder is None


def test_outputs_themselves_are_looked_into_too() -> None:
    model = net()
    given = TrainingBatch(
        model,
        (torch.ones(3, 4),),
        seeds=lambda ends: [torch.eye(3)[:, :2] for _ in ends],
    )
    report = find_all(given)
    assert report.ladder is not None and report.paths is not None
    weight = report.paths.answers["2.weight"].norm
    output = model(torch.ones(3, 4))
    (real,) = torch.autograd.grad(output, [model[2].weight], torch.eye(3)[:, :2])
    assert weight is not None and abs(weight - float(real.norm())) < 1e-6


class Root(nn.Module):
    """A linear layer, and what is made of its output."""

    def __init__(self, then: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.then = nn.Linear(4, 2), then

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.then(self.fc(x))


def not_finite(model: nn.Module) -> list[str]:
    return [
        one.sentence
        for one in find_all(subject(model)).found
        if one.kind == "non-finite"
    ]


def test_what_is_not_finite_and_is_dropped_on_the_way_is_no_error() -> None:
    def constant(h: torch.Tensor) -> torch.Tensor:
        return torch.where(h.isnan(), torch.tensor(float("nan")).log(), h)

    def masked(h: torch.Tensor) -> torch.Tensor:
        return torch.where(h > 0, h, h.detach().clamp(max=0).sqrt()).nan_to_num()

    def logits(h: torch.Tensor) -> torch.Tensor:
        return h + torch.logdet(torch.eye(2) + 0 * h[:2])

    assert [not_finite(Root(then)) for then in (constant, masked, logits)] == [
        [],
        [],
        [],
    ]


def test_what_was_dropped_and_comes_back_in_the_gradient_is_told_with_its_origin() -> (
    None
):
    sentences = not_finite(Root(lambda h: torch.where(h > 0, h, (h - h).sqrt())))
    assert any(
        "In the forward pass" not in one and "SqrtBackward0" in one for one in sentences
    )
    sentences = not_finite(Root(lambda h: torch.where(h > 0, h, (h - h).log())))
    assert any(
        "In the forward pass, log" in one and "Inf" in one for one in sentences
    ), "where forward dropped it"


def test_the_origin_of_what_reaches_the_loss_is_told_and_not_what_was_dropped_before_it() -> (
    None
):
    def then(h: torch.Tensor) -> torch.Tensor:
        unread = (h.detach() - h.detach()).log()
        return torch.where(unread > 0, unread, h) / (h.sum() - h.sum())

    (forward, *_) = not_finite(Root(then))
    assert "In the forward pass, div" in forward


class Graphs(nn.Module):
    """A layer over a graph whose neighbours lie in a sparse matrix of some layout."""

    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        torch.manual_seed(0)
        block = (2, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
        self.register_buffer(
            "near", torch.eye(4).roll(1, 0).to_sparse(layout=layout, blocksize=block)
        )
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (
            torch.sparse.mm(self.near, self.fc(x))
            if self.near.is_sparse
            else self.near @ self.fc(x)
        )


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    "layout",
    [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr],
    ids=lambda layout: str(layout).removeprefix("torch."),
)
def test_sparse_layouts_are_looked_into_and_weighed_with_their_indices(
    layout: torch.layout,
) -> None:
    graphs = TrainingBatch(Graphs(layout), (torch.randn(4, 4),))
    said = [(one.kind, one.title) for one in find_all(graphs).found]
    # torch itself has no backward of it here; findings of another kind would send somebody looking for a write.
    assert said == ([("failed", "backward")] if layout is torch.sparse_bsr else [])
    with graphs.hold() as graph:
        kept = {storage.id: storage for storage in graph.tape.storages}
        near = {
            one.storage
            for node in graph.tape.nodes
            for one in node.saved
            if kept[one.storage].kind == "buffer"
        }
    matrix = graphs.model.near
    blocks = parts_of(matrix)
    assert len(blocks) == (2 if layout is torch.sparse_coo else 3)
    assert sum(kept[one].bytes for one in near) == sum(
        block.untyped_storage().nbytes() for block in blocks
    )


def test_a_line_to_write_and_a_message_of_several_lines_are_printed_without_replacement_characters() -> (
    None
):
    found = Finding(
        "in place",
        "error",
        "fc",
        "Spoiled.",
        before="    v += 1",
        after="    v = v.clone()\n    v += 1",
    )
    lines = [console.printable(line) for line in of_findings([found])]
    assert lines == [
        "error: fc: Spoiled.",
        "    - v += 1",
        "    + v = v.clone()",
        "    + v += 1",
    ]
    assert (
        console.printable("Jacobian mismatch\nfor output\x1b")
        == "Jacobian mismatch for output\N{REPLACEMENT CHARACTER}"
    )


class Listed(nn.Module):
    """Layers in a plain list that hides a method, and in a dict; a teacher that is kept out on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.modules = [nn.Linear(4, 4), nn.Linear(4, 4)]  # type: ignore[assignment]
        self.heads = {"a": nn.Linear(4, 2)}
        self.fc = nn.Linear(4, 4)
        self.again, self.teacher = [self.fc], [nn.Linear(4, 4).requires_grad_(False)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.modules:
            x = torch.relu(layer(x))
        return self.heads["a"](self.fc(x))


def test_layers_in_a_plain_list_are_not_registered_and_not_trained() -> None:
    model = Listed()
    keys = list(nn.Module.state_dict(model))
    findings = [
        each for each in find_all(subject(model)).found if each.kind == "unregistered"
    ]
    assert [each.title for each in findings] == ["modules", "heads"], (
        "not what is registered too, nor what is frozen"
    )
    assert (
        "modules[0] to modules[1] are not registered" in findings[0].sentence
        and "not trained" in findings[0].sentence
    )
    assert "nn.ModuleList" in findings[0].cure
    assert list(nn.Module.state_dict(model)) == keys == ["fc.weight", "fc.bias"], (
        "nothing was registered"
    )
    (remark,) = observe(model, (torch.randn(3, 4),)).remarks
    assert "modules[0], modules[1], heads['a'] are not registered" in remark
    assert find_all(subject(net())).found == ()
