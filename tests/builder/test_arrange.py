"""Lay out: what belongs together stands in one row."""

from __future__ import annotations

from typing import Any

from app.builder.edits import comments, edits
from app.builder.layout import layout
from app.builder.layout.arrange import arrange
from app.project.project import Project
from tests.support.builder_nets import net


def test_a_row_ends_between_residual_blocks_and_not_within_them() -> None:
    rows: list[Any] = [("input", "x", {"shape": (8,)})]
    wires: list[tuple[Any, ...]] = []
    last = "x"
    for i in range(4):
        names = [f"start{i}", f"fc{i}", f"relu{i}"]
        rows += zip(("nn.LayerNorm", "nn.Linear", "nn.ReLU"), names, ({}, {"out_features": 8}, {}), strict=True)
        rows.append(("operator.add", f"add{i}", {}))
        wires += zip([last, *names], [*names, f"add{i}"], strict=True)
        wires.append((names[0], f"add{i}", "other"))
        last = f"add{i}"
    graph = net([*rows, ("output", "y", {})], [*wires, (last, "y")])
    places = arrange(graph, {})
    assert len({y for _, y in places.values()}) > 1
    for i in range(4):
        assert len({places[f"{name}{i}"][1] for name in ("start", "fc", "relu", "add")}) == 1


def test_the_skips_of_a_unet_run_straight_across() -> None:
    rows: list[Any] = [("input", "x", {"shape": (4, 32, 32)})]
    wires: list[tuple[Any, ...]] = []
    last = "x"
    for i in range(3):
        rows += [("nn.Conv2d", f"down{i}", {}), ("nn.ReLU", f"skip{i}", {}), ("nn.MaxPool2d", f"pool{i}", {})]
        wires += zip((last, f"down{i}", f"skip{i}"), (f"down{i}", f"skip{i}", f"pool{i}"), strict=True)
        last = f"pool{i}"
    rows.append(("nn.Conv2d", "turn", {}))
    wires.append((last, "turn"))
    last = "turn"
    for i in (2, 1, 0):
        rows += [("nn.Upsample", f"up{i}", {}), ("torch.cat", f"cat{i}", {}), ("nn.Conv2d", f"conv{i}", {})]
        wires += [(last, f"up{i}"), (f"skip{i}", f"cat{i}", "tensors"), (f"up{i}", f"cat{i}", "tensors"),
                  (f"cat{i}", f"conv{i}")]  # fmt: skip
        last = f"conv{i}"
    graph = net([*rows, ("output", "y", {})], [*wires, (last, "y")])
    places = arrange(graph, {})
    for i in range(3):
        assert places[f"skip{i}"][1] == places[f"cat{i}"][1]
        assert places[f"skip{i}"][0] < places[f"cat{i}"][0]
    assert len({places[f"cat{i}"][0] for i in range(3)}) == 1
    assert places["skip0"][1] < places["skip1"][1] < places["skip2"][1] < places["turn"][1]


def test_a_row_ends_between_modules_of_branches_rather_than_within_one() -> None:
    rows: list[Any] = [("input", "x", {"shape": (16, 8, 8)})]
    wires: list[tuple[Any, ...]] = []
    last = "x"
    for i in range(3):
        rows.append(("torch.cat", f"cat{i}", {}))
        for branch in "abc":
            rows += [("nn.Conv2d", f"{branch}{i}", {}), ("nn.Conv2d", f"{branch}{branch}{i}", {})]
            wires += [(last, f"{branch}{i}"), (f"{branch}{i}", f"{branch}{branch}{i}"),
                      (f"{branch}{branch}{i}", f"cat{i}", "tensors")]  # fmt: skip
        last = f"cat{i}"
    places = arrange(net([*rows, ("output", "y", {})], [*wires, (last, "y")]), {}, 800)
    for i in range(3):
        assert places[f"a{i}"][0] < places[f"aa{i}"][0] < places[f"cat{i}"][0]


def test_what_stands_in_a_frame_stays_in_its_row_and_frames_keep_apart() -> None:
    names = [f"fc{i}" for i in range(6)]
    rows: list[Any] = [("input", "x", {"shape": (8,)}), *(("nn.Linear", name, {}) for name in names)]
    project = Project(graph=net(rows, [*zip(["x", *names], names, strict=False)]))
    project = layout.laid_out(project, project.graph.nodes, {})
    spread = edits.move_nodes(project, {name: (200.0 * i, 400.0 if i < 3 else 900.0) for i, name in enumerate(names)})
    for part in (names[:3], names[3:]):
        spread, _ = comments.frame(spread, part, {}, part[0])
    for width in (4000, 900, 300):
        after = layout.laid_out(spread, spread.graph.nodes, {}, width)
        first, second = after.comments.values()
        assert first.y + first.height < second.y or first.x + first.width < second.x
        held = comments.framed(after.comments, after.positions, {})
        assert list(held.values()) == [tuple(names[:3]), tuple(names[3:])]
        assert (len({after.positions[name][1] for name in names[:3]}) == 1) == (width > 300)
