"""An opened model of any kind is captured, played and diagnosed; its gradients are those of plain torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from app.autograd.capture_options import CaptureOptions
from app.autograd.errors import CaptureError
from app.autograd.playback.playback import Playback
from app.autograd.tape import to_json
from app.engine.requests.observe import ModelCapture, ModelReport, Observe
from app.engine.tasks.observe import batch_of_model, capture_model, report
from app.sources.loading import load
from app.sources.spec import parse_input, parse_source
from app.util import rng
from tests.support import own_code
from tests.support.opened_models import INPUTS, KINDS, NETS


class Asked:
    """What a handler needs."""

    def progress(self, _value: Any) -> None:
        return

    def cancelled(self) -> bool:
        return False

    class inbox:
        empty = staticmethod(lambda: True)


@pytest.fixture
def capture_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ModelCapture]]:
    file = tmp_path / "opened_kinds.py"
    file.write_text(NETS)
    own_code.trust(f"{file}:any")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield lambda name, **changes: ModelCapture(
        Observe(
            parse_source(f"{file}:{name}"), inputs=tuple(map(parse_input, INPUTS[name]))
        ),
        **changes,
    )
    sys.modules.pop("opened_kinds", None)


def plain_gradients(request: ModelCapture) -> dict[str, Tensor]:
    """`.grad` after forward and backward as a script would write them."""
    with rng.borrowed(request.seed):
        loaded = load(request.model.source, {}, request.model.inputs)
    model = loaded.model.train(request.train)
    with rng.borrowed(request.seed):
        output = model(*loaded.args, **loaded.kwargs)
        if isinstance(output, dict):
            total = output["logits"].sum() + output["hidden"][0].sum()
        elif isinstance(output, tuple):
            total = output[0].sum() + output[1][1].sum()
        else:
            total = output.loss
        total.backward()
    return {
        name: one.grad for name, one in model.named_parameters() if one.grad is not None
    }


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_played_gradients_are_bit_for_bit_those_of_plain_torch(
    capture_of: Callable[..., ModelCapture], name: str, train: bool
) -> None:
    request = capture_of(name, train=train, seed=3)
    real = plain_gradients(request)
    with batch_of_model(request).hold() as graph:
        playback = Playback(graph)
        assert playback.run().reason == "end"
        played = playback.gradients
        playback.release()
    assert real and set(played) == set(real)
    assert all(torch.equal(played[one], real[one]) for one in real)


@pytest.mark.parametrize("name", KINDS)
def test_nodes_have_their_module_and_the_line_of_the_users_file(
    capture_of: Callable[..., ModelCapture], name: str
) -> None:
    captured = capture_model(capture_of(name), Asked())
    tape = captured.tape
    lines = NETS.splitlines()
    for node in tape.nodes:
        assert (
            node.file.endswith("opened_kinds.py")
            and tape.code_of(node) == lines[node.line - 1].strip()
        )
    layers = {node.layer for node in tape.nodes}
    assert {
        "Masked": {"", "first", "last"},
        "WithLoss": {"", "words", "head"},
        "Tied": {"", "one", "two"},
    }[name] <= (layers | {"drop"})
    assert (tape.loss is not None) == (name == "WithLoss")
    assert all(
        node["file"] == tape.nodes[node["id"]].file for node in to_json(tape)["nodes"]
    )
    found = {one.path: one for one in captured.figures}
    real = plain_gradients(capture_of(name))
    assert found[""].gradient == pytest.approx(
        sum(float(one.norm()) ** 2 for one in real.values()) ** 0.5
    )
    assert found[""].parameters == sum(one.numel() for one in real.values())
    assert found[""].saved == tape.held_bytes


def test_figures_of_outputs_are_those_of_the_tensors(
    capture_of: Callable[..., ModelCapture],
) -> None:
    request = capture_of("Masked")
    figures = {one.path: one for one in capture_model(request, Asked()).figures}[
        "first"
    ]
    batch, outputs = batch_of_model(request), list[Tensor]()
    batch.model.first.register_forward_hook(
        lambda _m, _i, output: outputs.append(output.detach())
    )
    batch.hold().release()
    assert figures.shape == (2, 8) and figures.absmax == float(outputs[0].abs().max())
    assert (
        figures.mean == pytest.approx(float(outputs[0].mean()))
        and figures.parameters == 40
    )


def test_a_model_kept_by_its_module_is_captured_as_a_copy(
    capture_of: Callable[..., ModelCapture], tmp_path: Path
) -> None:
    (tmp_path / "opened_kinds.py").write_text(f"{NETS}\nkept = Tied()\n")
    own_code.trust(f"{tmp_path / 'opened_kinds.py'}:kept")
    request = capture_of("Tied")
    request = replace(
        request,
        model=replace(request.model, source=replace(request.model.source, name="kept")),
    )
    one, other = batch_of_model(request), batch_of_model(request)
    assert one.model is not other.model
    assert all(
        torch.equal(a, b)
        for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True)
    )


def test_findings_name_lines_of_the_file(
    capture_of: Callable[..., ModelCapture],
) -> None:
    told = report(ModelReport(capture_of("Breaks"), graph=False, findings=True))
    line = next(
        number for number, code in enumerate(NETS.splitlines(), 1) if "sqrt" in code
    )
    said = next(words for words in told.lines if "SqrtBackward0" in words)
    assert (
        told.found
        and f"line {line} (" in said
        and "opened_kinds.py)" in said
        and "Inf" in said
    )


def test_other_modes_and_starts_are_captured(
    capture_of: Callable[..., ModelCapture],
) -> None:
    plain = capture_of("Masked")
    for options in (
        CaptureOptions(loss=False, outputs=(0,), vector="one-hot", index=1),
        CaptureOptions(amp="bfloat16"),
        CaptureOptions(second_order=True),
        CaptureOptions(checkpoint=("first",)),
        CaptureOptions(compile=True),
    ):
        captured = capture_model(replace(plain, options=options), Asked())
        assert captured.tape.nodes and len(captured.tape.roots) == (
            1 if options.outputs or options.second_order else len(captured.tape.roots)
        )
    one = capture_model(
        replace(plain, options=CaptureOptions(loss=False, outputs=(1,))), Asked()
    )
    assert not any(node.layer == "last" for node in one.tape.nodes)


def test_what_raises_is_said_with_its_line_and_a_model_too_large_is_refused(
    capture_of: Callable[..., ModelCapture],
) -> None:
    request = capture_of("Masked")
    wrong = replace(
        request, model=replace(request.model, inputs=(parse_input("x=2x5"),))
    )
    with pytest.raises(
        CaptureError,
        match=r"RuntimeError at line \d+ of opened_kinds.py: mat1 and mat2",
    ):
        capture_model(wrong, Asked())
    large = Observe(parse_source("torchvision:vit_h_14"))
    with pytest.raises(CaptureError, match="of weights at most"):
        capture_model(ModelCapture(large), Asked())
