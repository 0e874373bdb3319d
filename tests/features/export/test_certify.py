"""The proof in a clean process, and that it fails when something was altered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from app.export.text_files import write_text
from app.export.weights import StateDict, save_pt, save_safetensors
from app.features.export.compute.certify import (
    Certificate,
    Files,
    certify,
    certify_export,
)
from app.features.export.compute.clean_process import ExportCancelledError
from app.source.compiled import make_module
from app.source.generated import InputSpec, Source
from app.util.rng import GENERATOR
from tests.features.export.export_here import work_here, work_in_forks
from tests.support.training_jobs import CONV_NET, net

NORMED = net(
    [
        "self.conv1 = nn.Conv2d(1, 3, 3)",
        "self.norm1 = nn.BatchNorm2d(3)",
        "self.fc1 = nn.Linear(108, 4)",
    ],
    [
        "x = F.dropout(self.norm1(self.conv1(x)), 0.3, self.training)",
        "return self.fc1(x.flatten(1))",
    ],
)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    work_here(monkeypatch)


def state_of(source: Source) -> StateDict:
    torch.manual_seed(0)
    return make_module(source).state_dict()


def certified(
    source: Source,
    folder: Path,
    text: str | None = None,
    state: StateDict | None = None,
    **options: object,
) -> Certificate:
    """The certificate of an export whose text or weights may be other than those of the live net."""
    live = state_of(source)
    write_text(folder / "model.py", source.text if text is None else text)
    save_pt(live if state is None else state, folder / "weights.pt")
    return certify(
        source, live, Files(folder / "model.py", folder / "weights.pt"), **options
    )  # type: ignore[arg-type]


def test_an_untouched_export_is_the_same_in_every_way(tmp_path: Path) -> None:
    """Dropout and BatchNorm: both modes, gradients, statistics; and nothing of the program is moved."""
    seen: list[str] = []
    certificate = certified(CONV_NET, tmp_path, seed=3, tell=seen.append)
    assert certificate.passed, certificate.lines
    drawn = torch.rand(3)
    state_of(CONV_NET)  # as before the certificate
    assert torch.equal(torch.rand(3), drawn) and GENERATOR.acquire(blocking=False)
    GENERATOR.release()
    kinds = {(one.what, one.mode, one.dtype) for one in certificate.checks}
    assert kinds == {
        ("outputs", "eval", "float32"),
        ("outputs", "eval", "float64"),
        ("gradients", "eval", "float64"),
        ("outputs", "train", "float64"),
        ("gradients", "train", "float64"),
        ("buffers", "train", "float64"),
    }
    assert all(one.equal and one.largest == 0 for one in certificate.checks)
    assert (
        certificate.check("gradients", "train").count == 9
        and certificate.check("buffers", "train").count == 3
    )
    assert (
        "bit for bit" in certificate.message
        and "in eval and in train mode" in certificate.message
    )
    assert any("here" in words for words in seen) and any(
        "lean process" in words for words in seen
    )


def test_the_file_beside_the_code_says_what_was_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    work_in_forks(monkeypatch)
    state = state_of(NORMED)
    write_text(tmp_path / "model.py", NORMED.text)
    save_safetensors(state, tmp_path / "weights.safetensors")
    code, weights = tmp_path / "model.py", tmp_path / "weights.safetensors"
    certificate, path = certify_export(NORMED, state, code, weights, seed=5)
    assert path == tmp_path / "model.certificate.json"
    kept = json.loads(path.read_text("utf-8"))
    assert (
        kept["passed"]
        and kept["seed"] == 5
        and kept["torch"] == torch.__version__
        and kept["date"]
    )
    assert kept["files"] == {
        one.name: hashlib.sha256(one.read_bytes()).hexdigest()
        for one in (code, weights)
    }
    assert kept["packages"] == {"torch": kept["packages"]["torch"]} and kept["inputs"][
        "x"
    ]["shape"] == [2, 1, 8, 8]
    assert kept["lines"] == list(certificate.lines) and kept["lines"][0].startswith(
        "passed: "
    )
    assert all(one["largest relative difference"] == 0 for one in kept["checks"])


def altered(source: Source, name: str) -> dict[str, torch.Tensor]:
    state = {key: value.clone() for key, value in state_of(source).items()}
    state[name].view(-1)[0] += 1e-6
    return state


@pytest.mark.parametrize(
    ("old", "new", "what", "mode"),
    [
        (
            "self.conv1(x)",
            "self.conv1(x).float().to(x.dtype)",
            "outputs",
            "eval",
        ),  # seen in float64 alone
        ("self.conv1(x)", "self.conv1(x).detach()", "gradients", "eval"),
        (
            "self.norm1(self.conv1(x))",
            "self.norm1(self.conv1(x.detach()))",
            "gradients",
            "eval",
        ),
        ("0.3, self.training", "0.3 if self.training else 0.0, self.training", "", ""),
        ("0.3, self.training", "0.31, self.training", "outputs", "train"),
        ("BatchNorm2d(3)", "BatchNorm2d(3, momentum=0.2)", "buffers", "train"),
        ("Linear(108, 4)", "Linear(108, 4).requires_grad_(False)", "gradients", "eval"),
    ],
)
def test_a_changed_text_is_found_where_it_shows(
    here: None, tmp_path: Path, old: str, new: str, what: str, mode: str
) -> None:
    certificate = certified(NORMED, tmp_path, NORMED.text.replace(old, new))
    assert certificate.passed is (not what), certificate.lines
    wrong = [one for one in certificate.checks if not one.passed]
    assert [(one.what, one.mode) for one in wrong][:1] == (
        [(what, mode)] if what else []
    )
    if "detach" in new:
        assert (
            certificate.check("outputs", "eval").equal
            and "has no gradient" in certificate.message
        )


def test_one_altered_number_is_found(here: None, tmp_path: Path) -> None:
    certificate = certified(NORMED, tmp_path, state=altered(NORMED, "fc1.bias"))
    check = certificate.check("outputs", "eval")
    assert (
        not certificate.passed
        and not check.passed
        and 1e-8 < (check.largest or 0) < 1e-4
    )
    assert "differ by at most" in certificate.message and certificate.lines[
        0
    ].startswith("failed: ")


def test_what_does_not_run_is_told_in_words(here: None, tmp_path: Path) -> None:
    state = state_of(NORMED)
    short = {name: value for name, value in state.items() if name != "conv1.bias"}
    assert "conv1.bias" in certified(NORMED, tmp_path, state=short).message
    gone = certify(
        NORMED, state, Files(tmp_path / "nowhere.py", tmp_path / "weights.pt")
    )
    assert not gone.passed and "cannot be read" in gone.message
    broken = replace(NORMED, inputs=(InputSpec("x", (2, 8, 8)),))
    assert (
        "The network itself returns no outputs: RuntimeError"
        in certified(broken, tmp_path).message
    )


def test_the_process_knows_nothing_of_the_program_and_has_an_end(
    tmp_path: Path,
) -> None:
    certificate = certified(
        NORMED, tmp_path, "import app.source.generated\n" + NORMED.text
    )
    assert (
        not certificate.passed
        and "app" in certificate.message
        and "Traceback" in certificate.details
    )
    hangs = certified(NORMED, tmp_path, "import time\ntime.sleep(600)\n", patience=1)
    assert not hangs.passed and "was stopped" in hangs.message


def test_it_stops_when_nobody_waits_any_more(tmp_path: Path) -> None:
    calls = iter([False] * 4)
    with pytest.raises(ExportCancelledError):
        certified(
            NORMED,
            tmp_path,
            "import time\ntime.sleep(600)\n",
            cancelled=lambda: next(calls, True),
        )


def test_a_net_that_draws_in_eval_mode_and_gives_several_things(
    here: None, tmp_path: Path
) -> None:
    """In a dict; a list and a word among them, and a complex one."""
    source = net(
        [
            "self.linear1 = nn.Linear(64, 3)",
            "self.register_buffer('noise', torch.randn(3), persistent=False)",
        ],
        [
            "y = F.dropout(self.linear1(x.flatten(1)), 0.5, True) + torch.rand(3, dtype=x.dtype) + self.noise",
            "return {'out': y, 'more': [x.new_full((), 2.5), 'word'], 'f': torch.fft.fft(y)}",
        ],
    )
    certificate = certified(source, tmp_path)
    assert certificate.passed, certificate.lines
    assert certificate.checks[0].count == 3
    other = certified(source, tmp_path, source.text.replace("'word'", "'another'"))
    assert not other.passed and "other objects" in other.message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("return self.linear1(x.flatten(1)).log()", "numbers of output are NaN"),
        ("return self.linear1(x.flatten(1)) / 0", "numbers of output are infinite"),
        (
            "return (self.linear1(x.flatten(1)) * 0).abs().sqrt() * 0",
            "numbers of",
        ),  # the gradient alone
    ],
)
def test_numbers_that_are_not_finite_prove_nothing(
    here: None, tmp_path: Path, line: str, words: str
) -> None:
    certificate = certified(net(["self.linear1 = nn.Linear(64, 3)"], [line]), tmp_path)
    assert (
        not certificate.passed
        and words in certificate.message
        and "nothing is proven" in certificate.message
    )
    assert (
        all(one.passed or one.odd for one in certificate.checks)
        and certificate.checks[0].equal
    )


def test_whole_numbers_sparse_gradients_and_a_layer_apart(
    here: None, tmp_path: Path
) -> None:
    source = net(
        ["self.emb = nn.Embedding(9, 4, sparse=True)", "self.spare = nn.Linear(2, 2)"],
        ["return self.emb(x).sum(1)"],
    )
    source = replace(source, inputs=(InputSpec("x", (5,), "int64", 0, 9),))
    certificate = certified(source, tmp_path)
    check = certificate.check("gradients", "train")
    assert certificate.passed and (check.count, check.empty) == (3, 2), (
        certificate.lines
    )


def test_a_net_without_parameters_is_held_by_its_inputs(
    here: None, tmp_path: Path
) -> None:
    source = net([], ["return x.mul_(2).sum()"])
    source = replace(
        source, text=source.text.replace("__init__()\n", "__init__()\n        pass\n")
    )
    certificate = certified(source, tmp_path)
    assert certificate.passed and certificate.check("gradients", "eval").count == 1, (
        certificate.lines
    )
    cut = certified(
        source, tmp_path, source.text.replace("x.mul_(2)", "x.detach().mul_(2)")
    )
    assert not cut.passed and "input x has no gradient" in cut.message


def test_a_layer_that_refuses_float64_is_compared_in_its_own(
    here: None, tmp_path: Path
) -> None:
    source = net(
        ["self.fc1 = nn.Linear(64, 3)"],
        ["return self.fc1(x.flatten(1)) @ torch.eye(3)"],
    )
    certificate = certified(source, tmp_path)
    check = certificate.check("gradients", "train")
    assert certificate.passed and check.dtype == "float32" and check.equal, (
        certificate.lines
    )
    assert "does not run in float64" in certificate.message
    cut = certified(
        source, tmp_path, source.text.replace("self.fc1(x", "self.fc1(2 * x")
    )
    assert not cut.passed


def test_what_goes_no_way_back_is_told_and_not_held_against_it(
    here: None, tmp_path: Path
) -> None:
    """A backward that torch refuses, one that no output asks for, and a train mode that wants more than there is."""
    stuck = net(
        ["self.fc1 = nn.Linear(64, 3)"],
        [
            "y = self.fc1(x.flatten(1)).exp()",
            "y.add(y).exp_().mul_(y.add_(1))",
            "return y",
        ],
    )
    certificate = certified(stuck, tmp_path)
    assert certificate.passed and "gradients in eval mode" in certificate.message, (
        certificate.lines
    )
    assert "inplace operation" in certificate.check("gradients", "eval").finding
    rounds = certified(
        net(
            ["self.fc1 = nn.Linear(64, 3)"], ["return self.fc1(x.flatten(1)).argmax(1)"]
        ),
        tmp_path,
    )
    assert (
        rounds.passed
        and "no output depends" in rounds.check("gradients", "train").finding
    )
    lonely = net(
        ["self.norm1 = nn.BatchNorm1d(64)"], ["return self.norm1(x.reshape(1, 64))"]
    )
    certificate = certified(lonely, tmp_path)
    assert (
        certificate.passed
        and "more than 1 value" in certificate.check("outputs", "train").finding
    )
