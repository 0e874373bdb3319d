"""A certificate of an imported net compares with its source model, and a planted difference fails it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from app import cli
from app.builder.analysis import analyse
from app.features.export.compute.certify import certify_export
from app.features.export.values import Certificate
from app.project import custom_layers, drawing_digest
from app.project import file as project_file
from app.source.compiled import make_module
from app.sources.spec import InputSpec, SourceSpec
from app.training.setup.initial_weights import initial_weights
from tests.features.export.export_here import work_here
from tests.support.own_code import trust

NETS = "the nets are imported by a feature that is not there"
task = pytest.importorskip("app.features.importing.task", reason=NETS)
planted = pytest.importorskip("tests.slow.planted_differences", reason=NETS)


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> list[planted.Net]:
    return planted.nets(tmp_path_factory.mktemp("imported"))


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    work_here(monkeypatch)
    yield


def test_what_is_untouched_passes_against_the_source_model(
    nets: list[planted.Net], tmp_path: Path
) -> None:
    for net in nets:
        clean = planted.Planted("nothing", "", net.source.text, net.values, net.values)
        found = planted.certificate_of(net, clean, tmp_path)
        rows = {(one.what, one.mode) for one in found.checks if one.source}
        assert (
            found.passed
            and f"are those of the source model nets.py:{net.name}" in found.message
        ), found.lines
        assert rows >= {
            ("values", ""),
            ("outputs", "eval"),
            ("gradients", "eval"),
            ("gradients", "train"),
        }


def test_every_kind_of_planted_difference_fails(
    nets: list[planted.Net], tmp_path: Path
) -> None:
    told: list[str] = []
    assert planted.campaign(nets, 2 * len(planted.KINDS), tmp_path, told.append) == 0, (
        told
    )
    assert all(any(kind in line for line in told) for kind in planted.KINDS)
    assert (
        sum("is not the source model" in line for line in told) >= 4
    )  # net and export agree there


def imported(tmp_path: Path, text: str) -> project_file.Project:
    (tmp_path / "own.py").write_text(f"import torch\nfrom torch import nn\n{text}")
    trust("own.py:Own", tmp_path)
    question = task.ImportModel(
        SourceSpec("file", str(tmp_path / "own.py"), "Own"), {}, (InputSpec((2, 4)),)
    )
    return task.answer(question, tmp_path)


def certified(project: project_file.Project, tmp_path: Path) -> Certificate:
    source = analyse(project.graph, custom_layers.ops_of(project)).source
    state = initial_weights(source, 0, project.training.start)
    found, _ = certify_export(
        source, state, None, None, imported=drawing_digest.imported(project, source)
    )
    return found


PLAIN = """
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return {body}
"""


def test_an_edited_drawing_is_said_to_compare_no_more_and_a_changed_file_fails(
    tmp_path: Path,
) -> None:
    project = imported(tmp_path, PLAIN.format(body="self.fc(x).tanh()"))
    assert certified(project, tmp_path).passed
    (node,) = [node for node in project.graph.nodes.values() if node.op == "nn.Linear"]
    edited = replace(
        project, graph=project.graph.with_param(node.id, "out_features", 5)
    )
    edited = project_file.with_start(edited, None)
    found = certified(edited, tmp_path)
    assert (
        found.passed
        and "not compared with own.py:Own, since its drawing was edited"
        in found.message
    )
    assert not any(one.source for one in found.checks)
    assert project.origin is not None and project.origin.reference is not None
    reference = Path(project.origin.reference.path)
    reference.write_bytes(reference.read_bytes()[:-8] + bytes(8))
    assert "was changed since the import" in certified(project, tmp_path).message
    assert not certified(project, tmp_path).passed
    reference.unlink()
    assert "does not exist" in certified(project, tmp_path).message


def test_values_that_are_not_finite_in_the_model_itself_are_said(
    tmp_path: Path,
) -> None:
    project = imported(tmp_path, PLAIN.format(body="self.fc(x).log()"))
    found = certified(project, tmp_path)
    assert (
        found.passed and "NaN" in found.message and "not verified" in found.message
    ), found.lines
    source = analyse(project.graph, custom_layers.ops_of(project)).source
    bare, _ = certify_export(
        source, initial_weights(source, 0, project.training.start), None, None
    )
    assert not bare.passed  # without the model to compare with


def test_without_weights_the_class_is_compared_with_the_model_too(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").write_text(planted.NETS)
    trust("own.py:Masked", tmp_path)
    source = SourceSpec("file", str(tmp_path / "own.py"), "Masked")
    question = task.ImportModel(source, {}, (InputSpec((2, 6, 8)),), keep_weights=False)
    project = task.answer(question, tmp_path)
    found = certified(project, tmp_path)
    words = "outputs, gradients and buffers in eval and train mode are those of the source model"
    assert found.passed and words in found.message
    net = analyse(project.graph, custom_layers.ops_of(project)).source
    wrong = replace(net, text=net.text.replace("/ 2", "/ 3"))
    assert wrong.text != net.text
    state = {
        **make_module(wrong).state_dict(),
        **initial_weights(net, 0, project.training.start),
    }
    of = drawing_digest.imported(project, net)
    assert not certify_export(wrong, state, None, None, imported=of)[0].passed


@pytest.mark.usefixtures("forked_trials")
def test_an_export_asks_for_no_trust_again_until_the_file_is_edited(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(custom_layers.layer_files, "_allowed", set())
    file, out = tmp_path / "own.py", tmp_path / "p.tape"
    body = "torch.autocast('cpu', dtype=torch.bfloat16)(self.fc)(x).to(x.dtype)"
    file.write_text(f"import torch\nfrom torch import nn\n{PLAIN.format(body=body)}")
    assert (
        cli.run(["import", f"{file}:Own", "--input", "2x4", "--trust", "-o", str(out)])
        == 0
    )
    assert project_file.read(out).layer_files, "the class of the file is a node"
    monkeypatch.setattr(custom_layers.layer_files, "_allowed", set())  # another process
    assert cli.run(["export", str(out), "--code", str(tmp_path / "m.py")]) == 0
    file.write_text(file.read_text() + "# another\n")
    monkeypatch.setattr(custom_layers.layer_files, "_allowed", set())
    assert cli.run(["export", str(out), "--code", str(tmp_path / "n.py")]) == 1
    assert "is not trusted yet" in capsys.readouterr().err
