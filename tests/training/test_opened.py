"""A model of somebody's code is trained as it is: headless, and by the script that imports it, bit for bit."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from app.cli import run
from app.data.config import DataConfig
from app.preflight import opened as opened_nets
from app.preflight import preflight
from app.project import file
from app.project.project import Project
from app.project.weights import state_dicts
from app.source.compiled import make_module
from app.source.interface import Argument, Interface, Returned
from app.source.layer_files import LayerFileError
from app.sources.code import source_of
from app.sources.opened import OpenedModel
from app.sources.spec import SourceError, parse_source
from app.training.config import TARGET, Choice, OutputLoss, TrainingConfig
from app.util.frozen import FrozenMap
from tests.support import own_code, script_here
from tests.support.needs import needs

pytestmark = pytest.mark.usefixtures("no_pictures")

PARTS = """
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.fc, self.drop = nn.BatchNorm1d(width), nn.Linear(width, width), nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(self.fc(self.norm(x)).relu())
"""
NET = """
from dataclasses import dataclass

import torch
from torch import nn

from .parts import Block

print("made by hand")

@dataclass
class Output:
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    hidden: tuple | None = None

class Tiny(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.blocks = nn.ModuleList([Block(width), Block(width)])
        self.head = nn.Linear(width, 10)

    def forward(self, mask=None, pixels=None, labels=None):
        x, hidden = self.first(pixels.flatten(1)), []
        for block in self.blocks:
            x = block(x)
            hidden.append(x)
        logits = self.head(x)
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return Output(loss, logits, tuple(hidden))
"""
SHORT = (
    "--epochs",
    "2",
    "--set",
    "threads=1",
    "--set",
    "batch_size=256",
    "--seed",
    "3",
)
MINE = ("mine/net.py:Tiny", "--input", "pixels=2x1x8x8", "--args", '{"width": 6}')
OWN_LOSS = (
    "--set",
    'losses=[{"output": "loss", "name": "OwnLoss"}]',
    "--set",
    "inputs.labels=(target)",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "mine"
    package.mkdir()
    for name, text in (("__init__.py", ""), ("net.py", NET), ("parts.py", PARTS)):
        (package / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]


@pytest.fixture
def trained(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Train a source, and return the events that the command wrote."""

    def train(*arguments: str, out: str = "run") -> list[str]:
        assert (
            run(["train", *arguments, *SHORT, "--trust", "--out", out, "--json"]) == 0
        )
        return capsys.readouterr().out.splitlines()

    return train


def by_script(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the events of the exported script."""
    with pytest.MonkeyPatch.context() as here:
        for name in ("mine", "mine.net", "mine.parts"):
            here.delitem(sys.modules, name, raising=False)
        assert script_here.run_script(folder, "--json") is None
    return [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("{")
    ]


def told(lines: list[str]) -> list[str]:
    return [line for line in lines if '"saved"' not in line]


def test_nothing_of_the_user_runs_before_trust(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine" / "net.py").write_text("open('ran', 'w')")
    assert run(["train", "mine/net.py:Tiny", "--out", "run"]) == 1
    assert "was not run; review it, then pass --trust" in capsys.readouterr().err
    assert not (folder / "ran").exists() and not (folder / "run").exists()


def test_a_model_of_a_package_trains_as_its_script_does_and_goes_on_from_a_checkpoint(
    trained: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = trained(*MINE, "--set", "save_every=4", "--loss", "cross_entropy")
    assert told(by_script(folder / "run", capsys)) == told(lines)
    weights = state_dicts.read(folder / "run" / "weights.safetensors").tensors
    assert {"first.weight", "blocks.1.norm.running_mean", "head.bias"} <= weights.keys()
    theirs = torch.load(folder / "run" / "trained" / "weights.pt", weights_only=True)
    assert all(torch.equal(theirs[name], value) for name, value in weights.items())
    script = (folder / "run" / "make_model.py").read_text()
    assert (
        "from mine.net import Tiny" in script
        and "Tiny(width=6)" in script
        and "output.logits" in script
    )
    stored = folder / "run" / "runs" / "0001"
    assert file.read(stored / "project.tape").opened is not None
    at = stored / "checkpoints" / "step-00000008.pt"
    rest = [line for line in told(lines)[1:] if json.loads(line).get("step", 99) > 8]
    again = trained(str(stored / "project.tape"), "--resume", str(at), out="again")
    assert told(again)[1:] == rest


def test_a_step_that_fails_names_the_line_of_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (
        "--on",
        "fake",
        "--set",
        "data.options.shape=[3,8,8]",
        "--set",
        "data.options.count=40",
    )
    assert run(["train", *MINE, *data, "--trust", "--out", "run"]) == 1
    told = capsys.readouterr().err
    line = next(
        n for n, text in enumerate(NET.splitlines(), 1) if "pixels.flatten(1)" in text
    )
    assert (
        f"(line {line} of net.py)" in told
        and "Choose data of the shapes that the model takes" in told
    )


def test_the_loss_that_a_model_computes_itself_is_trained_on(
    trained: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = trained(*MINE, *OWN_LOSS)
    assert told(by_script(folder / "run", capsys)) == own
    plain = trained(*MINE, "--loss", "cross_entropy", out="plain")
    losses = [
        [json.loads(line)["loss"] for line in lines if '"step", ' in line]
        for lines in (own, plain)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 12
    assert json.loads(own[-2])["train_accuracy"] is None


def test_a_model_of_a_collection_trains_as_its_script_does(
    trained: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (
        "--on",
        "fake",
        "--set",
        "data.options.count=24",
        "--set",
        "data.options.shape=[3,32,32]",
    )
    lines = trained(
        "torchvision:squeezenet1_1",
        "--args",
        '{"num_classes": 10}',
        *data,
        "--set",
        "batch_size=8",
    )
    assert by_script(folder / "run", capsys) == lines
    assert (
        'torchvision.models.get_model("squeezenet1_1", weights=None, num_classes=10)'
        in (folder / "run" / "make_model.py").read_text()
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mine/net.py:Nett",), "has no class or function Nett; it has Tiny"),
        (
            (*MINE, "--set", 'losses=[{"output": "score", "name": "MSELoss"}]'),
            "does not return score; it returns loss",
        ),
        ((*MINE, "--set", "epochs=many"), "Expected `int`, got `str` - at `$.epochs`"),
        ((*MINE, "--set", "epochs"), "write NAME=VALUE"),
        ((*MINE, "--on", "nothing"), "unknown data; expected one of sklearn.digits"),
        (
            ("project.tape", "--args", "[]"),
            "--args and --input are for a model, and this is a project",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_with_its_reason(
    arguments: tuple[str, ...],
    words: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["train", *arguments, "--trust", "--out", "run"]) != 0
    assert words in capsys.readouterr().err and not (folder / "run").exists()


# --- The value, its file and its code

INTERFACE = Interface(
    "mine.net.Tiny",
    (Argument("mask"), Argument("pixels", (2, 1, 8, 8), "float32"), Argument("labels")),
    (
        Returned(".loss"),
        Returned(".logits", (2, 10), "float32"),
        Returned(".hidden[0]", (2, 4), "float32"),
    ),
    ("first", "head"),
    10,
)


def opened(folder: Path) -> OpenedModel:
    digest = own_code.trust("mine/net.py:Tiny", folder)
    return OpenedModel(
        parse_source("mine/net.py:Tiny"),
        FrozenMap(width=4),
        (),
        str(folder),
        digest,
        INTERFACE,
    )


def test_a_project_file_holds_an_opened_model_and_finds_it_again_when_moved(
    folder: Path,
) -> None:
    project = Project(
        "tiny",
        opened=opened(folder),
        training=TrainingConfig(inputs=FrozenMap(labels=TARGET)),
    )
    file.write(project, folder / "tiny.tape")
    assert file.read(folder / "tiny.tape") == project
    moved = folder.with_name("moved")
    folder.rename(moved)
    found = file.read(moved / "tiny.tape").opened
    assert (
        found is not None
        and found.folder == str(moved)
        and not opened_nets.changed(found)
    )


def test_a_project_file_puts_no_code_into_the_script(folder: Path) -> None:
    file.write(Project("tiny", opened=opened(folder)), folder / "tiny.tape")
    text = (folder / "tiny.tape").read_text()
    for name, words in (
        (".logits", "does not lead to a tensor"),
        ("mine/net.py:Tiny", "does not name a model"),
    ):
        (folder / "bad.tape").write_text(text.replace(name, "x; import os"))
        with pytest.raises(file.ProjectFileError, match=words):
            file.read(folder / "bad.tape")
    odd = replace(opened(folder), arguments=FrozenMap({"a b": "'; import os"}))
    assert 'Tiny(**{"a b": "\'; import os"})' in source_of(odd, ()).text
    with pytest.raises(SourceError, match="cannot be written into a script"):
        source_of(replace(odd, arguments=FrozenMap(width=float("nan"))), ())


def test_a_file_that_was_edited_since_it_was_opened_does_not_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = Project("tiny", opened=opened(folder), data=DataConfig())
    source = preflight.job(project, opened_nets.analysis_of(project)).source
    assert [one.name for one in source.inputs] == ["pixels"] and make_module(
        source
    ).state_dict()
    (folder / "mine" / "net.py").write_text(NET.replace("hidden.append(x)", "pass"))
    (problem,) = opened_nets.analysis_of(project).errors
    assert problem.message.endswith("has changed since it was opened")
    with pytest.raises(LayerFileError, match="has changed since its model was opened"):
        make_module(source)
    file.write(project, folder / "tiny.tape")
    assert run(["check", str(folder / "tiny.tape")]) == 1
    out = capsys.readouterr().out
    assert "net.py" in out and "was run; review it, then pass --trust" in out


@pytest.mark.parametrize(
    ("text", "model", "arguments", "expected"),
    [
        (
            "timm:resnet10t",
            "timm.models.resnet.ResNet",
            {"num_classes": 5},
            'timm.create_model("resnet10t", pretrained=False, num_classes=5)',
        ),
        (
            "hf:bert",
            "transformers.models.bert.modeling_bert.BertModel",
            {"hidden_size": 8},
            "transformers.AutoModel.from_config(config)",
        ),
        (
            "hf:bert",
            "transformers.models.bert.modeling_bert.BertForMaskedLM",
            {"architectures": ["BertForMaskedLM"]},
            "transformers.BertForMaskedLM(config)",
        ),
        (
            "diffusers:UNet2DModel",
            "diffusers.models.unets.unet_2d.UNet2DModel",
            {"in_channels": 1},
            'diffusers.UNet2DModel.from_config({"in_channels": 1})',
        ),
        (
            "torchvision:fcn_resnet50",
            "torchvision.models.segmentation.fcn.FCN",
            {},
            'torchvision.models.get_model("fcn_resnet50", weights=None, weights_backbone=None)',
        ),
        (
            "nets.mine:made",
            "nets.mine.Net",
            {},
            "copy.deepcopy(made) if isinstance(made, nn.Module) else made()",
        ),
    ],
)
def test_each_source_is_made_by_its_own_call(
    text: str, model: str, arguments: Any, expected: str
) -> None:
    one = OpenedModel(
        parse_source(text),
        FrozenMap(arguments),
        interface=Interface(
            model,
            (Argument("x", (1, 3), "float32", True),),
            (Returned("", (1, 3), "float32"),),
        ),
    )
    source = source_of(one, [])
    assert expected in source.text
    compile(source.text, "make_model.py", "exec")


def test_models_of_one_name_in_two_folders_are_each_their_own(
    folder: Path, tmp_path: Path
) -> None:
    sources = []
    for name, width in (("here", 3), ("there", 5)):
        (tmp_path / name / "mine").mkdir(parents=True)
        for file_name, text in (
            ("__init__.py", ""),
            ("net.py", NET.replace("width=4", f"width={width}")),
            ("parts.py", PARTS),
        ):
            (tmp_path / name / "mine" / file_name).write_text(text)
        sources.append(
            source_of(replace(opened(tmp_path / name), arguments=FrozenMap()), ())
        )
    widths = [
        make_module(source).state_dict()["first.weight"].shape[0]
        for source in (*sources, *sources)
    ]
    assert widths == [3, 5, 3, 5]


def test_data_and_losses_choose_what_goes_in_and_what_comes_out(folder: Path) -> None:
    project = Project("tiny", opened=opened(folder), data=DataConfig("made.pairs"))
    (problem,) = opened_nets.analysis_of(project).errors
    assert (
        "Tiny takes mask, pixels, labels, and Pairs of digits provides first, second"
        in problem.reason
    )
    rows = (
        OutputLoss("logits", Choice("CrossEntropyLoss")),
        OutputLoss("loss", Choice("OwnLoss")),
    )
    chosen = FrozenMap(pixels="first", mask="second", labels=TARGET)
    both = replace(project, training=TrainingConfig(losses=rows, inputs=chosen))
    analysis = opened_nets.analysis_of(both)
    assert analysis.runnable and [one.name for one in analysis.source.inputs] == [
        "mask",
        "pixels",
        "labels",
    ]
    assert '{"logits": output.logits, "loss": output.loss}' in analysis.source.text
    assert (
        "by_name" not in analysis.source.text
    )  # they are forward's first arguments, in its order


@needs("revisit")
def test_a_step_of_an_opened_model_is_recomputed_and_its_graph_has_the_lines_of_its_files(
    trained: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(*MINE, *OWN_LOSS, "--set", "save_every=4")
    assert (
        run(
            [
                "revisit",
                "run",
                "--step",
                "10",
                "--trust",
                "--json",
                "--out",
                "step.json",
            ]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (told["checkpoint"], told["parted"], told["captured"]) == (
        "step-00000008.pt",
        None,
        True,
    )
    assert "blocks.1.norm" in [one["layer"] for one in told["layers"]]
    nodes = json.loads(Path("step.json").read_text())["nodes"]
    assert any(str(node.get("file", "")).endswith("net.py") for node in nodes)
