"""Going forwards and back on the tape of a backward pass, stopping, looking, and changing what flows."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from app.autograd.batch import TrainingBatch
from app.autograd.gradient_norms import describe_gradient, measure
from app.autograd.playback.gradient_edits import GradEdit
from app.autograd.playback.gradient_flow import MOST_PARTS
from app.autograd.playback.playback import Playback, StepError
from app.autograd.playback.steps import Breaks
from tests.support.playback_nets import NETS, Residual, batch, loss


def playback_of(name: str = "residual", **more: Any) -> Playback:
    torch.manual_seed(0)
    x, y = batch()
    return Playback(TrainingBatch(NETS[name](), x, loss, y).hold(), **more)


@pytest.fixture
def played() -> Iterator[Playback]:
    playback = playback_of()
    yield playback
    playback.release()


def node_of(playback: Playback, layer: str, name: str = "AddmmBackward0") -> int:
    return next(
        node.id
        for node in playback.tape.nodes
        if node.layer == layer and node.name == name
    )


def bits(playback: Playback) -> dict[str, Tensor]:
    return {
        name: gradient.to_dense().clone()
        for name, gradient in playback.gradients.items()
    }


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) for name in one
    )


# -- going -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1 << 30, 0])
@pytest.mark.parametrize(
    "name", ["residual", "looped", "shared", "checkpoint", "reentrant", "sparse"]
)
def test_back_and_forward_again_gives_the_same_bits(name: str, keep: int) -> None:
    """Also where nothing is kept to step back with, and the pass is played again from its start."""
    playback = playback_of(name, keep=keep)
    seen: list[tuple[dict[str, Tensor], Any]] = [
        (bits(playback), playback.gradient(playback.tape.order[0]))
    ]
    while playback.step() is not None:
        seen.append((bits(playback), None))
    records = playback.records
    whole = len(playback)
    for position in (whole - 1, whole // 2, whole // 2 - 1, 0):
        playback.seek(position)
        assert playback.position == len(playback.records) == position
        assert same(bits(playback), seen[position][0])
    assert not playback.back() and playback.gradients == {}
    playback.run()
    assert same(bits(playback), seen[-1][0])
    told = [(r.node, r.arriving, r.leaving, r.fan_ins, r.held) for r in records]
    assert told == [
        (r.node, r.arriving, r.leaving, r.fan_ins, r.held) for r in playback.records
    ]
    playback.release()


def test_the_node_that_runs_next_and_the_end(played: Playback) -> None:
    assert played.next_node == played.tape.order[0] and len(played) == len(
        played.tape.nodes
    )
    assert (
        played.run_to(node_of(played, "b")).node
        == node_of(played, "b")
        == played.next_node
    )
    assert played.run().reason == "end"
    assert played.next_node is None and played.step() is None
    assert (
        played.run_to(node_of(played, "b")).position
        == played.tape.steps[node_of(played, "b")]
    )


def test_a_run_stops_before_nodes_and_layers(played: Playback) -> None:
    head = node_of(played, "head")
    stop = played.run(Breaks(nodes=frozenset({head})))
    assert (stop.reason, stop.node, played.next_node) == ("node", head, head)
    stop = played.run(
        Breaks(nodes=frozenset({head}), layers=frozenset({"b"}))
    )  # goes on from where it stopped
    assert (stop.reason, stop.node) == ("layer", node_of(played, "b"))
    assert played.run(Breaks(layers=frozenset({"b"}))).reason == "end"
    played.seek(0)
    assert played.run(Breaks(layers=frozenset({"layer:b"}))).node == node_of(
        played, "b"
    )


def test_a_run_stops_after_a_norm_above_a_bound_and_after_a_nan(
    played: Playback,
) -> None:
    played.run()
    norms = [record.worst() for record in played.records]
    bound = sorted(norms)[-1] * 0.999
    played.seek(0)
    stop = played.run(Breaks(norm_above=bound, non_finite=True))
    assert (
        stop.reason == "norm"
        and stop.value == max(norms)
        and stop.position == norms.index(max(norms)) + 1
    )
    played.seek(3)
    node = played.next_node
    assert node is not None
    width = played.gradient(node)
    assert width is not None
    played.edit(node, 0, torch.full_like(width, math.nan))
    stop = played.run(Breaks(non_finite=True))
    assert (stop.reason, stop.node, stop.value) == (
        "non_finite",
        node,
        float(width.numel()),
    )
    assert played.records[-1].arriving[0].nonfinite == width.numel()  # type: ignore[union-attr]


def test_a_cancel_ends_a_run_between_two_steps(played: Playback) -> None:
    def on_step(record: Any) -> None:
        if record.position == 4:
            thread = threading.Thread(target=played.cancel)
            thread.start()
            thread.join()

    stop = played.run(on_step=on_step)
    assert (stop.reason, stop.position, played.position) == ("cancelled", 5, 5)
    assert played.run().reason == "end"


def test_it_plays_on_a_thread_of_its_own() -> None:
    want, playback = playback_of(), playback_of(scale=1.0)
    want.run()
    thread = threading.Thread(target=playback.run)
    thread.start()
    thread.join()
    assert same(bits(playback), bits(want))
    want.release()
    playback.release()


def test_a_node_that_raises_says_where_and_leaves_it_standing() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.fc(x).sigmoid()
            out = hidden.exp()
            hidden.add_(1)
            return out

    x, y = batch()
    playback = Playback(TrainingBatch(Broken(), x, loss, y).hold())
    with pytest.raises(
        StepError,
        match="SigmoidBackward0 of Broken: RuntimeError: one of the variables",
    ) as caught:
        playback.run()
    assert playback.tape.nodes[caught.value.node].name == "SigmoidBackward0"
    assert (
        playback.next_node == caught.value.node
        and len(playback.records) == playback.position
    )
    playback.release()


def test_nothing_stays_alive_after_release() -> None:
    playback = playback_of("checkpoint")
    playback.run()
    model = playback.graph.model
    watched = [
        weakref.ref(t)
        for t in (*playback.gradients.values(), *playback.graph.ends, model)
    ]
    watched += [
        weakref.ref(playback.edge_gradient(e.source, e.slot))
        for e in playback.tape.edges[:4]
    ]
    del model
    playback.release()
    playback.release()
    gc.collect()
    assert [reference() for reference in watched] == [None] * len(watched)
    assert len(playback.records) == len(
        playback.tape.order
    )  # what it told is plain data
    with pytest.raises(RuntimeError, match="was freed"):
        playback.seek(0)
        playback.step()


# -- what a step tells -------------------------------------------------------------------------------------------------


def test_the_numbers_of_a_gradient() -> None:
    (stats,) = measure([torch.tensor([[3.0, 0.0], [-4.0, 0.0]])], scale=2.0)
    assert stats is not None
    assert (stats.shape, stats.dtype, stats.norm, stats.absmax, stats.mean) == (
        (2, 2),
        "float32",
        5.0,
        4.0,
        -0.25,
    )
    assert (stats.zeros, stats.nonfinite, stats.unscaled) == (0.5, 0, 2.5)
    tiny, huge, broken, empty, half, turned = measure(
        [
            torch.full((4,), 1e-30),
            torch.full((4,), 1e30),
            torch.tensor([1.0, math.nan, math.inf]),
            torch.empty(0, 3),
            torch.full((4,), 300.0, dtype=torch.float16),
            torch.tensor([3 + 4j, 0j]),
        ]
    )
    assert tiny and huge and broken and empty and half and turned
    assert tiny.norm == pytest.approx(2e-30) and huge.norm == pytest.approx(
        2e30
    )  # squares beyond single precision
    assert (
        broken.nonfinite == 2
        and math.isnan(broken.norm)
        and empty.norm == 0.0 == empty.zeros
    )
    assert half.norm == 600.0 and half.mean == 300.0
    assert (turned.norm, turned.absmax, turned.zeros) == (5.0, 5.0, 0.5)
    indices, values = [[1, 1, 3]], [[1.0, 0.0], [2.0, 0.0], [4.0, 0.0]]
    sparse = torch.sparse_coo_tensor(indices, values, (5, 2), check_invariants=True)
    (stats,) = measure([sparse])
    assert stats is not None
    assert (stats.shape, stats.norm, stats.zeros, stats.mean) == ((5, 2), 5.0, 0.8, 0.7)
    assert measure([None]) == [None]


def test_a_step_tells_what_arrives_and_what_leaves(played: Playback) -> None:
    played.run_to(node_of(played, "head"))
    record = played.step()
    assert record is not None and record.node == node_of(played, "head")
    arriving = played.gradient(record.node)
    assert arriving is not None
    (stats,) = record.arriving
    assert (
        stats is not None
        and stats.shape == (6, 3)
        and stats.norm == pytest.approx(float(arriving.norm()))
    )
    _, before, weight = record.leaving
    assert (
        before.stats is not None
        and before.stats.shape == (6, 8)
        and record.seconds > 0
        and record.made == 0
    )
    assert played.result().edge_norms[record.node, before.slot] == before.stats.norm
    assert played.result().node_norms[record.node] == stats.norm
    assert (
        played.tape.nodes[before.target].name,
        played.tape.nodes[weight.target].name,
    ) == (
        "AddBackward0",
        "TBackward0",
    )


def test_what_was_broadcast_is_summed_in_the_turn_of_its_node() -> None:
    playback = playback_of("complex")
    playback.run()
    leaf = next(
        node.id for node in playback.tape.nodes if node.parameters == ("scale",)
    )
    (edge,) = playback.tape.incoming[leaf]
    left = next(
        e for e in playback.result().by_node[edge.source].leaving if e.slot == edge.slot
    )
    assert left.stats is not None and left.stats.shape == (1,)
    assert playback.result().by_node[leaf].arriving == (left.stats,)
    playback.release()


def test_who_carries_the_learning_at_a_fan_in(played: Playback) -> None:
    played.run()
    (fan_in,) = [fan for record in played.records for fan in record.fan_ins]
    tape = played.tape
    skip, branch = fan_in.shares
    assert (
        tape.nodes[skip.source].name == "AddBackward0"
        and tape.nodes[branch.source].layer == "b"
    )
    one, other = (
        played.edge_gradient(share.source, share.slot) for share in fan_in.shares
    )
    assert one is not None and other is not None
    total = one + other
    assert (
        fan_in.norm == pytest.approx(float(total.norm()), rel=1e-5)
        and fan_in.edges == 2
    )
    assert skip.projection == pytest.approx(
        float((one * total).sum() / total.square().sum()), rel=1e-5
    )
    assert skip.projection is not None and branch.projection is not None
    assert skip.projection + branch.projection == pytest.approx(1.0)
    cosine = float(torch.cosine_similarity(one.flatten(), other.flatten(), dim=0))
    assert (
        fan_in.cosines[0][1] == fan_in.cosines[1][0] == pytest.approx(cosine, abs=1e-6)
    )


def test_of_many_edges_only_the_sum_is_kept() -> None:
    playback = playback_of("looped")
    playback.run()
    weight = next(
        node.id for node in playback.tape.nodes if node.parameters == ("one.weight",)
    )
    fan_in = next(fan for fan in playback.result().by_node[weight].fan_ins)
    assert fan_in.edges > MOST_PARTS and fan_in.shares == () and fan_in.norm > 0
    playback.release()


def test_the_norms_under_a_gradient_scaler() -> None:
    plain, scaled = playback_of(), playback_of(scale=1024.0)
    plain.run(), scaled.run()
    for one, other in zip(plain.records, scaled.records, strict=True):
        for a, b in zip(one.arriving, other.arriving, strict=True):
            assert a is not None and b is not None
            assert b.unscaled == pytest.approx(
                a.norm, rel=1e-5
            ) and b.norm == pytest.approx(1024 * a.norm, rel=1e-5)
    plain.release()
    scaled.release()


# -- looking -----------------------------------------------------------------------------------------------------------


def test_a_look_at_a_gradient() -> None:
    values = torch.arange(-6.0, 6.0).view(1, 3, 2, 2)
    values[0, 2, 1, 1] = math.inf
    look = describe_gradient(values)
    assert look.where == "[0, 0, :8, :8]" and look.rows == (("−6", "−5"), ("−4", "−3"))
    assert sum(look.histogram.counts) == 11 and (
        look.nan,
        look.positive_inf,
        look.negative_inf,
    ) == (0, 1, 0)
    assert (look.histogram.low, look.histogram.high) == (-6.0, 4.0)
    assert len(look.pictures) == 3 and look.leading == (1,)
    assert list(look.pictures[0].data) == [1, 22, 43, 64] and list(
        look.pictures[2].data
    ) == [170, 192, 213, 0]
    second = describe_gradient(torch.arange(12.0).view(3, 2, 2), at=(2,))
    assert (
        second.where == "[2, :8, :8]"
        and second.rows[0] == ("8", "9")
        and second.pictures[0].width == 2
    )
    assert (
        describe_gradient(torch.tensor(2.0)).rows == (("2",),)
        and describe_gradient(torch.ones(5)).pictures[0].height == 1
    )
    wide = describe_gradient(torch.ones(3, 2000)).pictures[0]
    assert wide.every == (1, 4) and (wide.height, wide.width) == (3, 500)
    assert describe_gradient(torch.empty(0, 4)).pictures == ()
    assert all(
        level == 128 for level in describe_gradient(torch.zeros(2, 2)).pictures[0].data
    )


def test_looking_at_nodes(played: Playback) -> None:
    node = node_of(played, "a")
    assert played.inspect(node) is None
    played.run()
    look = played.inspect(node)
    assert look is not None and look.stats == played.result().by_node[node].arriving[0]


# -- changing ----------------------------------------------------------------------------------------------------------


def test_an_edited_gradient_goes_on_as_with_a_hook() -> None:
    x, y = batch()
    torch.manual_seed(0)
    model = Residual()
    with TrainingBatch(model, x, loss, y).hold() as graph:
        playback = Playback(graph)
        playback.run()
        plain = bits(playback)
        node = graph.nodes.index(model.kept.grad_fn)
        playback.run_to(node)
        stats = playback.edit(node, 0, GradEdit("scale", -3.0))
        assert stats.norm == pytest.approx(3 * playback.records[-1].norm, rel=1)  # type: ignore[operator]
        assert playback.edits == ((playback.position, node, 0),)
        playback.run()
        assert playback.result().by_node[node].edited == (0,)
        ours = bits(playback)
        model.kept.register_hook(lambda gradient: gradient * -3.0)
        names = [name for name, _ in model.named_parameters()]
        want = torch.autograd.grad(
            graph.ends[0], list(model.parameters()), retain_graph=True
        )
        assert all(
            torch.equal(ours[name], gradient)
            for name, gradient in zip(names, want, strict=True)
        )
        assert torch.equal(ours["head.weight"], plain["head.weight"])
        assert not torch.equal(ours["a.weight"], plain["a.weight"])


@pytest.mark.parametrize("keep", [1 << 30, 0])
def test_stepping_back_undoes_an_edit(keep: int) -> None:
    playback = playback_of(keep=keep)
    playback.run()
    plain = bits(playback)
    playback.seek(4)
    node = playback.next_node
    assert node is not None
    playback.edit(node, 0, GradEdit("noise", 0.5, seed=3))
    playback.run()
    noisy = bits(playback)
    assert not same(noisy, plain)
    playback.seek(4)  # right after the edit
    assert playback.edits == ((4, node, 0),)
    playback.run()
    assert same(bits(playback), noisy)
    playback.seek(4)
    assert playback.undo_edit() and not playback.undo_edit()
    playback.run()
    assert same(bits(playback), plain)
    playback.seek(4)
    playback.edit(node, 0, GradEdit("zero"))
    assert playback.back() and playback.position == 3 and playback.edits == ()
    playback.run()
    assert same(bits(playback), plain)
    playback.release()


def test_an_edit_before_the_second_gradient_has_come(played: Playback) -> None:
    """What arrives later is added to what was put there."""
    node = node_of(played, "a")
    played.run_to(node_of(played, "b"))
    first = played.gradient(node)
    assert first is not None
    played.edit(node, 0, torch.zeros_like(first))
    played.run_to(node)
    edge = next(
        edge
        for edge in played.tape.incoming[node]
        if played.tape.nodes[edge.source].layer == "b"
    )
    after, branch = played.gradient(node), played.edge_gradient(edge.source, edge.slot)
    assert after is not None and branch is not None and torch.equal(after, branch)


def test_every_kind_of_edit(played: Playback) -> None:
    played.seek(2)
    node = played.next_node
    assert node is not None
    before = played.gradient(node)
    assert before is not None
    norm = float(before.norm())
    assert played.edit(node, 0, GradEdit("clip", norm / 2)).norm == pytest.approx(
        norm / 2
    )
    assert played.edit(node, 0, GradEdit("clip", norm)).norm == pytest.approx(norm / 2)
    assert played.edit(node, 0, GradEdit("ones")).mean == 1.0
    assert played.edit(node, 0, GradEdit("zero")).norm == 0.0
    while played.undo_edit():
        continue
    assert torch.equal(played.gradient(node), before)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no edit called twist"):
        GradEdit("twist")
    with pytest.raises(
        ValueError, match=r"shape \(6, 3\); the given tensor has \(2,\)"
    ):
        played.edit(node, 0, torch.ones(2))
    with pytest.raises(ValueError, match="No gradient has arrived"):
        played.edit(node_of(played, "a"), 0, GradEdit("zero"))
    with pytest.raises(ValueError, match="has run already"):
        played.edit(played.tape.order[0], 0, GradEdit("zero"))
