"""Trust holds for the place and for every file of the user's own that a model runs, and nothing else of theirs runs."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
from importlib import metadata
from pathlib import Path

import pytest

from app.cli import commands
from app.main import main
from app.source import layer_files, layer_modules, own_files, own_imports
from app.source.layer_files import LayerFile, LayerFileError
from app.source.trust import FILE, TrustStore, default_file
from app.sources.finding import files_of
from app.sources.spec import parse_source
from tests.slow import hostile_folders
from tests.support import opened_projects, strangers

pytestmark = pytest.mark.usefixtures("nothing_trusted")

PARTS = """from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 3))
"""


def marking(folder: Path) -> str:
    return f"import pathlib\npathlib.Path({str(folder / 'ran')!r}).touch()\n"


def model(folder: Path) -> Path:
    """A model whose class is in a neighbour."""
    folder.mkdir(parents=True)
    (folder / "main_net.py").write_text("from parts import Net\n")
    (folder / "parts.py").write_text(PARTS)
    return folder


def drawn(folder: Path, *options: str, name: str = "main_net.py:Net()") -> int:
    out = str(folder.parent / "picture.json")
    return main(
        ["autograd", f"{folder}/{name}", "--input", "1x4", "--out", out, *options]
    )


def test_a_trusted_file_in_another_folder_or_with_another_neighbour_is_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = model(tmp_path / "a"), model(tmp_path / "b")
    assert drawn(mine, "--trust") == 0 and drawn(mine) == 0
    (other / "parts.py").write_text(PARTS + marking(other))
    capsys.readouterr()
    assert drawn(other) == 1
    assert (
        "was not run; review it, then pass --trust, with what it imports: parts.py"
        in capsys.readouterr().err
    )
    (mine / "parts.py").write_text(PARTS + marking(mine))
    assert drawn(mine) == 1
    assert not (other / "ran").exists() and not (mine / "ran").exists()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("train", ("--on", "iris", "--out", "run")),
        ("autograd", ("--input", "1x4", "--out", "tape.json")),
        ("import", ("--input", "1x4", "-o", "new.tape")),
        ("import", ("--input", "1x4", "--observe", "-o", "new.tape")),
    ],
)
def test_every_verb_asks_once_a_neighbour_has_changed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    options: tuple[str, ...],
) -> None:
    if command not in commands():
        pytest.skip(f"its feature is not there: {command}")
    monkeypatch.chdir(tmp_path)
    folder = model(tmp_path / "a")
    assert drawn(folder, "--trust") == 0
    (folder / "parts.py").write_text(PARTS + marking(folder))
    assert main([command, "a/main_net.py:Net()", *options]) == 1
    assert not (folder / "ran").exists()


def test_a_project_of_a_model_asks_once_a_neighbour_has_changed_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = model(tmp_path / "a")
    opened_projects.write("a/main_net.py:Net", Path("p.tape"), "1x4")
    layer_files.trust_only((), ())
    train = ["train", "p.tape", "--on", "iris", "--epochs", "1"]
    assert main([*train, "--out", "first"]) == 0
    (folder / "parts.py").write_text(PARTS + marking(folder))
    assert main([*train, "--out", "second"]) == 1
    assert main(["autograd", "p.tape", "--findings"]) != 0
    assert not (folder / "ran").exists()


def test_planted_bytecode_does_not_run_in_place_of_a_text_or_of_its_neighbour(
    tmp_path: Path,
) -> None:
    folder = model(tmp_path / "a")
    planted = tmp_path / "planted.py"
    planted.write_text(marking(folder) + PARTS)
    for file in ("main_net.py", "parts.py"):
        cache = importlib.util.cache_from_source(str(folder / file))
        py_compile.compile(
            str(planted),
            cache,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    assert drawn(folder, "--trust") == 0
    assert not (folder / "ran").exists()


def test_packages_that_a_file_is_in_are_among_what_is_reviewed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = model(tmp_path / "pk")
    (package / "__init__.py").write_text(marking(package))
    (package / "net.py").write_text(PARTS)
    assert drawn(package, name="net.py:Net()") == 1
    assert "__init__.py" in capsys.readouterr().err and not (package / "ran").exists()
    files = files_of(parse_source(f"{package}/net.py:Net"))
    assert files is not None and [file.name for file in files.files] == [
        "net.py",
        "__init__.py",
    ]


def test_what_a_file_imports_in_any_form_is_among_what_is_reviewed(
    tmp_path: Path,
) -> None:
    package = tmp_path / "pk"
    (package / "inner").mkdir(parents=True)
    for name in (
        "__init__",
        "near",
        "late",
        "literal",
        "inner/__init__",
        "inner/deep",
        "unused",
    ):
        (package / f"{name}.py").write_text("")
    (package / "inner" / "star.py").write_text("from .. import unused\n")
    (package / "net.py").write_text(
        "import pk.near\nfrom .inner import deep\ndef f():\n    from pk import late\ntry:\n    from . import literal\n"
        "except ImportError:\n    pass\nimport torch\nimport os.path\n"
    )
    files = own_files.read(package / "net.py", "pk.net")
    assert files is not None
    names = {Path(file.path).relative_to(tmp_path).as_posix() for file in files.files}
    assert names == {
        f"pk/{name}.py" for name in ("net", "__init__", "near", "late", "literal")
    } | {"pk/inner/__init__.py", "pk/inner/deep.py"}
    (package / "net.py").write_text("from .inner import *\n")
    starred = own_files.read(package / "net.py", "pk.net")
    assert starred is not None and {"star.py", "unused.py"} <= {
        file.name for file in starred.files
    }


def test_a_file_that_is_named_by_no_statement_does_not_run_and_the_cure_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, beside = model(tmp_path / "a"), tmp_path / "elsewhere"
    beside.mkdir()
    (beside / "hidden_parts.py").write_text(marking(folder))
    (folder / "parts.py").write_text(
        f"import sys\nsys.path.insert(0, {str(beside)!r})\n__import__('hidden' + '_parts')\n{PARTS}"
    )
    assert drawn(folder, "--trust") != 0
    assert (
        "hidden_parts.py is your own code that was not reviewed"
        in capsys.readouterr().err
    )
    assert not (folder / "ran").exists()


def test_what_runs_is_the_text_that_was_read_when_trust_was_checked(
    tmp_path: Path,
) -> None:
    folder = model(tmp_path / "a")
    files = files_of(parse_source(f"{folder}/main_net.py:Net"))
    assert files is not None
    files.permit()
    (folder / "parts.py").write_text(marking(folder))
    assert importlib.import_module("main_net").Net.__name__ == "Net"
    assert not (folder / "ran").exists()


def test_a_store_of_the_format_before_trusts_nothing(tmp_path: Path) -> None:
    folder = model(tmp_path / "a")
    text = (folder / "main_net.py").read_text()
    old = [
        {
            "sha256": layer_files.digest(text),
            "path": str(folder / "main_net.py"),
            "tried": True,
            "text": text,
        }
    ]
    default_file().parent.mkdir(parents=True, exist_ok=True)
    default_file().write_text(json.dumps(old))
    assert default_file().name == FILE and not TrustStore(default_file()).is_trusted(
        layer_files.digest(text)
    )
    assert drawn(folder) == 1


def test_the_trial_of_a_layer_file_imports_no_neighbour_that_nobody_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        layer_modules, "_CHILD", layer_modules._CHILD.replace("import torch\n", "")
    )  # takes seconds
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([".", os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted_neighbour.py").write_text("open('mark', 'w').close()\n")
    file = LayerFile.from_text("mine", "import planted_neighbour\n")
    layer_files.allow(file.sha256)
    with pytest.raises(LayerFileError):
        layer_modules.load(file)
    assert not (tmp_path / "mark").exists()


def test_an_installed_module_is_not_hidden_by_a_neighbour_that_nobody_reviewed(
    tmp_path: Path,
) -> None:
    folder = model(tmp_path / "a")
    (folder / "parts.py").write_text("import torchmetrics\n" + PARTS)
    (folder / "lightning_utilities.py").write_text(
        marking(folder)
    )  # which torchmetrics imports
    assert drawn(folder, "--trust") == 0
    assert not (folder / "ran").exists()


SHORT = (
    "another neighbour",
    "bytecode, unchecked hash",
    "an __init__.py above",
    "one that is loaded late",
)


@pytest.mark.parametrize(
    "attack",
    [one for one in hostile_folders.ATTACKS if one.name in SHORT],
    ids=lambda one: one.name,
)
def test_nothing_that_was_planted_runs(attack: hostile_folders.Attack) -> None:
    assert hostile_folders.attacked(attack) == ""


@pytest.mark.skipif(
    not strangers.can_be_tried(), reason="only root can become another user"
)
def test_another_user_is_refused_at_every_socket() -> None:
    outcomes = dict(strangers.tried())
    assert len(outcomes) == 6 and all(
        said.startswith("refused") for said in outcomes.values()
    ), outcomes


def test_installed_packages_tell_their_versions_where_own_files_are_restricted() -> (
    None
):
    own_imports.guard()
    assert metadata.version("torch") and any(metadata.entry_points())
