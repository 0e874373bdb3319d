"""`tapedeck import` and `tapedeck export` where something is wrong: one line with the cure, an exit code, no file."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from app.builder.analysis import analyse
from app.builder.blocks import with_blocks
from app.builder.catalog.catalog import catalog
from app.cli import run
from app.export.errors import WeightsError
from app.features.importing.compute.pipeline import project_of
from app.features.importing.process import import_file
from app.features.importing.values import ImportModel, ModelImportError
from app.project import file
from app.project.file import read
from app.project.project import Project
from app.project.weights import state_dicts
from app.source import layer_files
from app.source.compiled import make_module
from app.sources.spec import InputSpec, SourceSpec
from app.util import tensor_files
from app.util.resources import path as resource_path
from tests.support import own_code
from tests.support.needs import needs

Told = pytest.CaptureFixture[str]
DIGITS = resource_path("examples", "digits.tape")
FILE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(3, width)

    def forward(self, x):
        return self.fc(x)

net = Net(4)

def asks():
    return Net(int(input("how wide?")))
"""


def made(project: Project) -> nn.Module:
    return make_module(
        analyse(project.graph, with_blocks(catalog(), project.blocks)).source
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resnet18", "-o", "p.tape"], "does not name a model; write"),
        (["torchvision:resnet18", "-o", "p.txt"], "a project is .tape"),
        (
            ["torchvision:resnet18", "-o", "nowhere/p.tape"],
            "there is no folder nowhere",
        ),
        (
            ["torchvision:resnet18", "-o", "p.tape", "--input", "3by3"],
            "write sizes",
        ),
        (
            ["torchvision:resnet18", "-o", "p.tape", "--input", "0x3x32x32"],
            "has a size of 0",
        ),
        (["torchvision:resnet18", "-o", "p.tape", "--args", "{oh}"], "not valid JSON"),
        (
            ["torchvision:resnet18", "-o", "p.tape", "--into", "q.tape"],
            "are for a state_dict",
        ),
        (
            ["no.py:Net", "-o", "p.tape", "--input", "1x3", "--trust"],
            "there is no file no.py",
        ),
        (
            ["net.py:Net", "-o", "p.tape", "--trust"],
            "net.py:Net needs width: give its arguments as JSON",
        ),
        (["weights.pt", "-o", "p.tape"], "weights but no network"),
    ],
)
def test_what_is_asked_for_wrongly_is_exit_2_and_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Told,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(FILE)
    torch.save(nn.Linear(3, 4).state_dict(), "weights.pt")
    before = set(tmp_path.iterdir())
    assert run(["import", *arguments]) == 2
    told = capsys.readouterr().err
    left = {*tmp_path.iterdir()} - {tmp_path / "__pycache__"}
    assert words in told and told.count("\n") == 1 and left == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--code", "nowhere/net.py"], "there is no folder nowhere"),
        (["--code", "net.txt"], "--code writes .py"),
        (["--code", "net.py", "--script", "net.py"], "which is what --code writes"),
        (["--code", "my net.py", "--script", "train.py"], "not an importable name"),
        (["--code", "class.py", "--script", "train.py"], "not an importable name"),
        (["--code", "net.py", "--script", "there/train.py"], "from its own folder"),
    ],
)
@needs("export")
def test_an_export_that_cannot_be_is_refused_before_anything_is_written(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Told,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert run(["export", str(DIGITS), "--drawing", "net.json", *arguments]) == 2
    assert words in capsys.readouterr().err and [
        path.name for path in tmp_path.iterdir()
    ] == ["there"]


def test_an_argument_that_is_missing_is_told_with_those_there_are(
    tmp_path: Path, capsys: Told
) -> None:
    (tmp_path / "net.py").write_text(FILE)
    out = tmp_path / "p.tape"
    assert (
        run(
            [
                "import",
                f"{tmp_path / 'net.py'}:Net",
                "--input",
                "1x3",
                "--trust",
                "-o",
                str(out),
            ]
        )
        == 1
    )
    told = capsys.readouterr().err
    assert (
        "Net(width): missing a required argument" in told
        and "--args" in told
        and not out.exists()
    )


def test_a_file_that_asks_is_answered_by_nobody_and_its_line_is_told(
    tmp_path: Path,
) -> None:
    file = tmp_path / "net.py"
    file.write_text(FILE)
    inputs = (InputSpec((1, 3)),)
    own_code.trust(f"{file}:asks")
    with pytest.raises(ModelImportError, match="net.py, line 15: EOFError"):
        import_file(
            ImportModel(SourceSpec("file", str(file), "asks", True), {}, inputs),
            tmp_path,
        )
    project = import_file(
        ImportModel(SourceSpec("file", str(file), "net"), {}, inputs), tmp_path
    )  # one made already
    assert made(project)(torch.zeros(2, 3)).shape == (2, 4)


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.LazyLinear(4)

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        y = self.fc(x)
        return {"out": y, "aux": [y * 2, {"last": y + 1}], "none": None}


def test_nested_outputs_have_the_names_on_the_way_to_them_and_lazy_layers_their_sizes() -> (
    None
):
    found = made(project_of(Several(), (InputSpec((2, 3)),), "Several"))(
        torch.zeros(2, 3)
    )
    assert list(found) == ["out", "aux.0", "aux.1.last"] and found["out"].shape == (
        2,
        4,
    )


def test_a_forward_that_wants_another_number_of_inputs_says_which(
    tmp_path: Path,
) -> None:
    with pytest.raises(ModelImportError, match=r"Linear.forward\(input\): too many"):
        project_of(nn.Linear(3, 4), (InputSpec((2, 3)), InputSpec((2, 3))), "Linear")


def test_damaged_weights_and_other_pickles_are_told_in_plain_words(
    tmp_path: Path,
) -> None:
    torch.save(nn.Linear(3, 4).state_dict(), tmp_path / "half.pt")
    data = (tmp_path / "half.pt").read_bytes()
    (tmp_path / "half.pt").write_bytes(data[: len(data) // 2])
    (tmp_path / "other.pt").write_bytes(pickle.dumps({"a": 1}, protocol=4))
    (tmp_path / "text.pt").write_text("hello")
    for name, words in (
        ("half", "damaged or truncated"),
        ("other", "nothing was executed"),
        ("text", "not written by"),
    ):
        with pytest.raises(WeightsError, match=words) as told:
            state_dicts.read(tmp_path / f"{name}.pt")
        assert "weights_only" not in str(told.value)


DICTIONARIES = """
from dataclasses import dataclass
import torch
from torch import Tensor, nn

@dataclass
class Output:
    logits: Tensor
    attentions: Tensor | None = None

class Record(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.early = nn.Linear(6, 3), nn.Linear(6, 5)
    def forward(self, x):
        return Output(self.fc(x) + self.early(x)[:, :3])

class Only(Record):
    def forward(self, x):
        return {"scores": self.fc(x) + self.early(x)[:, :3]}

class Both(Record):
    def forward(self, x):
        return {"aux": self.early(x), "out": self.fc(x)}
"""


@pytest.mark.parametrize(
    ("name", "trained"), [("Record", "logits"), ("Only", "scores"), ("Both", "out")]
)
@pytest.mark.usefixtures("no_pictures")
def test_a_model_that_returns_a_dictionary_trains_as_it_comes(
    name: str,
    trained: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Told,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(DICTIONARIES)
    asked = [
        "import",
        f"nets.py:{name}",
        "--input",
        "2x6",
        "--trust",
        "-o",
        "p.tape",
        "--synthetic-data",
    ]
    assert run(asked) == 0
    told = capsys.readouterr().out
    assert f"It returns a dictionary; the training loss uses {trained}." in told
    assert ("aux has none until you add one (Training, Loss)." in told) == (
        name == "Both"
    )
    assert (
        run(["train", "p.tape", "--out", "run", "--epochs", "1", "--device", "cpu"])
        == 0
    )
    project = read(tmp_path / "p.tape")
    assert [row.output for row in project.training.losses] == [trained]
    model = made(project)
    assert set(model(torch.zeros(2, 6))) == (
        {"aux", "out"} if name == "Both" else {trained}
    ), "as the source gives it"
    start = (
        tensor_files.load_safetensors(Path(project.training.start.path))
        if project.training.start
        else {}
    )
    learnt = tensor_files.load_safetensors(tmp_path / "run" / "weights.safetensors")
    assert not torch.equal(start["fc.weight"], learnt["fc.weight"])


EMPTY = """
import torch
from torch import nn

class Between(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
    def forward(self, x):
        past = torch.zeros(x.shape[0], 0)
        y = torch.cat([past, self.fc(x)], 1)
        return y + y[:, 3:].sum(1, keepdim=True)

class Into(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(0, 3)
    def forward(self, x):
        return self.fc(x[:, :0])
"""


def test_empty_tensors_are_as_torch_has_them_or_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Told
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(EMPTY)
    assert (
        run(["import", "nets.py:Between", "--input", "2x6", "--trust", "-o", "p.tape"])
        == 0
    )
    assert "outputs, gradients and buffers equal" in capsys.readouterr().out
    assert (
        run(["import", "nets.py:Into", "--input", "2x6", "--trust", "-o", "q.tape"])
        == 0
    )
    told = capsys.readouterr().out
    assert "(Into) is one node" in told and "in_features must be at least 1" in told


def test_inputs_have_names_and_values_or_come_from_an_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Told
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Words(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.e, self.l = nn.Embedding(9, 4), nn.Linear(4, 2)\n\n"
        "    def forward(self, ids):\n        return self.l(self.e(ids))\n\n\n"
        "def example():\n    return {'ids': torch.tensor([[1, 2, 3]])}\n"
    )
    for number, more in enumerate(
        (["--input", "ids=2x3:int64:0..8"], ["--example", "words.py:example"], [])
    ):
        out = tmp_path / f"{number}.tape"
        assert (
            run(["import", "words.py:Words", "--trust", "-o", str(out), *more]) == 0
        ), capsys.readouterr().err
        (given,) = (one for one in read(out).graph.nodes.values() if one.op == "input")
        assert given.name == "ids" and given.params["dtype"].name == "int64"


def test_a_model_that_is_observed_takes_synthetic_data_and_stays_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Told
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        "from torch import nn",
        "class Line(nn.Linear):",
        "    def __init__(self):",
        "        super().__init__(5, 3)",
    ]
    (tmp_path / "line.py").write_text("\n".join(lines))
    options = [
        "--observe",
        "--synthetic-data",
        "--trust",
        "--input",
        "2x5",
        "-o",
        "line.tape",
    ]
    assert run(["import", "line.py:Line", *options]) == 0
    layer_files.trust_only((), ())
    assert run(["check", "line.tape"]) == 0 and "0 errors" in capsys.readouterr().out


def test_a_model_of_a_package_is_imported_by_its_dotted_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "packaged_net"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text(
        "from torch import nn\nfrom .parts import Part\ndef make():\n    return nn.Sequential(Part(8), nn.ReLU())\n"
    )
    (package / "parts.py").write_text(
        "from torch import nn\nclass Part(nn.Linear):\n    def __init__(self, width):\n"
        "        super().__init__(width, width)\n"
    )
    ask = ["import", "packaged_net.net:make()", "-o", "net.tape", "--input", "2x8"]
    assert run(ask) == 1
    assert "packaged_net.net was not run; review it" in capsys.readouterr().err
    assert run([*ask, "--trust"]) == 0
    told = capsys.readouterr().out
    assert "Checked against the model" in told and "net.safetensors" in told
    origin = file.read(tmp_path / "net.tape").origin
    assert origin is not None and origin.model == "packaged_net.net:make()"
    ask[1], ask[3] = "packaged_net.net:Nope", "no.tape"
    assert run([*ask, "--trust"]) == 2
    assert "has no class or function Nope" in capsys.readouterr().err
