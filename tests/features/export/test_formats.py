"""PT2 and ONNX: what they write runs where the program is not, and gives what the net of the program gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from app import cli
from app.export.weights import StateDict
from app.features.export import values
from app.features.export.compute import clean_process, formats
from app.features.export.compute.clean_process import ExportCancelledError
from app.features.export.compute.formats import write_format
from app.features.export.values import FormatError, Kind, OpenAxis
from app.source.compiled import make_module
from app.source.generated import InputSpec, Source
from app.util.resources import path as resource_path
from tests.features.export.export_here import work_here, work_in_forks
from tests.support.training_jobs import CONV_NET, net

DIGITS = resource_path("examples", "MLP on digits.tape")
# Two inputs, a dict for output, one of its entries whole numbers.
PAIR = replace(
    net(
        ["self.emb = nn.Embedding(9, 4)", "self.fc1 = nn.Linear(68, 3)"],
        [
            "y = torch.cat([x.flatten(1), self.emb(k).sum(1)], 1)",
            "return {'out': self.fc1(y), 'most': k.amax(1)}",
        ],
    ),
    inputs=(InputSpec("x", (1, 8, 8)), InputSpec("k", (5,), "int64", 0, 9)),
)
PAIR = replace(
    PAIR,
    text=PAIR.text.replace("x: torch.Tensor)", "x: torch.Tensor, k: torch.Tensor)"),
)
# The batch is written into the net, and a third is drawn in eval mode too.
FIXED = net(
    ["self.fc1 = nn.Linear(64, 3)"],
    ["return F.dropout(self.fc1(x.reshape(1, 64)), 0.3, True)"],
)


def state_of(source: Source) -> StateDict:
    torch.manual_seed(0)
    return make_module(source).state_dict()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    work_here(monkeypatch)


@pytest.mark.parametrize("kind", ["PT2", "ONNX"])
def test_a_file_takes_any_batch_and_gives_the_same(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_in_forks(monkeypatch) if kind == "PT2" else work_here(monkeypatch)
    path = tmp_path / f"net.{kind.lower()}"
    seen: list[str] = []
    written = write_format(PAIR, state_of(PAIR), path, kind, tell=seen.append)
    assert written.passed and written.any_batch and path.stat().st_size > 1000, written
    assert (
        written.largest is not None
        and written.largest < 1e-6
        and "any size" in written.message
    )
    assert any(kind in words for words in seen) and [
        file.name for file in tmp_path.iterdir()
    ] == [path.name]


@pytest.mark.parametrize("kind", ["PT2", "ONNX"])
def test_an_open_axis_is_run_with_another_size_and_the_fixed_ones_are_named(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_in_forks(monkeypatch) if kind == "PT2" else work_here(monkeypatch)
    tokens = InputSpec("x", (6,), "int64", 0, 9)
    layers = ["self.embedding = nn.Embedding(9, 4)", "self.rows = nn.Linear(4, 3)"]
    source = replace(
        net(layers, ["return self.rows(self.embedding(x))"]), inputs=(tokens,)
    )
    path = tmp_path / f"net.{kind.lower()}"
    fixed = write_format(source, state_of(source), path, kind)
    assert fixed.fixed == ("x.1 = 6",) and "any size with x.1 = 6" in fixed.message
    written = write_format(
        source, state_of(source), path, kind, open_axes=[OpenAxis("x", 1)]
    )
    assert written.passed and written.any_batch and not written.fixed, written
    if kind == "PT2":
        other = torch.export.load(path).module()(torch.zeros(5, 11, dtype=torch.int64))
        assert other.shape == (5, 11, 3)
    with pytest.raises(
        FormatError, match=r"no axis x.2; its axes beside the batch are x.1"
    ):
        write_format(source, state_of(source), path, kind, open_axes=[OpenAxis("x", 2)])


def test_a_net_for_one_batch_says_so_and_one_that_draws_is_not_compared(
    here: None, tmp_path: Path
) -> None:
    written = write_format(FIXED, state_of(FIXED), tmp_path / "net.onnx", "ONNX")
    assert written.passed and not written.any_batch and written.random, written
    assert (
        "batches of one" in written.message and "uses random numbers" in written.message
    )


def test_a_file_of_another_net_does_not_pass(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compared is what the file gives: with other weights written, it says how far apart they are."""
    state = state_of(CONV_NET)
    other = {
        name: value + 0.01 if name == "linear1.bias" else value
        for name, value in state.items()
    }
    save = formats.save_pt
    monkeypatch.setattr(formats, "save_pt", lambda _, path: save(other, path))
    written = write_format(CONV_NET, state, tmp_path / "net.pt2", "PT2")
    assert (
        not written.passed
        and 1e-3 < (written.largest or 0) < 1
        and "differ by at most" in written.message
    )


def test_outputs_that_are_nan_prove_nothing(here: None, tmp_path: Path) -> None:
    """Such as those of a run that diverged: NaN is the same as NaN, bit for bit."""
    state = {
        name: (value * torch.nan).to(value.dtype)
        for name, value in state_of(CONV_NET).items()
    }
    written = write_format(CONV_NET, state, tmp_path / "net.pt2", "PT2")
    assert (
        not written.passed
        and "numbers of output are NaN" in written.message
        and "bit for bit" not in written.message
    )


def test_what_cannot_be_followed_leaves_no_file(here: None, tmp_path: Path) -> None:
    source = net(
        ["self.fc1 = nn.Linear(64, 3)"],
        ["y = self.fc1(x.flatten(1))", "return y if y.sum() > 0 else -y"],
    )
    with pytest.raises(
        FormatError, match="net.pt2 cannot be created: .*data-dependent"
    ):
        write_format(source, state_of(source), tmp_path / "net.pt2", "PT2")
    with pytest.raises(ExportCancelledError):
        write_format(
            PAIR, state_of(PAIR), tmp_path / "net.pt2", "PT2", cancelled=lambda: True
        )
    assert not list(tmp_path.iterdir())


def test_without_its_packages_onnx_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(values, "ONNX_PACKAGES", ("onnx", "onnx_of_nowhere"))
    with pytest.raises(FormatError, match="onnx_of_nowhere, which is not installed"):
        write_format(PAIR, {}, tmp_path / "net.onnx", "ONNX")
    assert cli.run(["export", str(DIGITS), "--onnx", str(tmp_path / "net.onnx")]) == 2
    assert "pip install tapedeck-torch[onnx]" in capsys.readouterr().err


# --- The command


def test_the_command_writes_and_certifies(
    here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, pt2 = tmp_path / "mlp.py", tmp_path / "mlp.pt2"
    assert (
        cli.run(
            ["export", str(DIGITS), "--code", str(code), "--certify", "--pt2", str(pt2)]
        )
        == 0
    )
    told = capsys.readouterr().out
    assert (
        f"{pt2}\npassed: mlp.pt2 takes batches of any size" in told
        and "gradients in train mode" in told
    )
    assert (
        "weights were in a temporary folder" in told
        and "--weights FILE keeps it" in told
    )
    kept = json.loads((tmp_path / "mlp.certificate.json").read_text("utf-8"))
    assert kept["passed"] and kept["weights"] == "untrained, initialised with seed 0"
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "mlp.certificate.json",
        "mlp.pt2",
        "mlp.py",
    ]


def test_a_certificate_that_fails_is_written_too_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise clean_process.CleanProcessError("NameError: no such thing", "a traceback")

    monkeypatch.setattr(clean_process, "run_script", broken)
    code = tmp_path / "mlp.py"
    assert cli.run(["export", str(DIGITS), "--code", str(code), "--certify"]) == 1
    assert (
        "failed: The exported files do not run in a clean Python process: NameError"
        in capsys.readouterr().out
    )
    assert not json.loads((tmp_path / "mlp.certificate.json").read_text("utf-8"))[
        "passed"
    ]
    assert cli.run(["export", str(DIGITS), "--pt2", str(tmp_path / "mlp.pt2")]) == 1
    assert "mlp.pt2 cannot be created: NameError" in capsys.readouterr().err
    assert cli.run(["export", str(DIGITS), "--pt2", str(tmp_path / "mlp.pt")]) == 2
