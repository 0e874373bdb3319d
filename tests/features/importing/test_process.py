"""An import is a question to an engine of its own: its refusals cross with their codes, and it can be stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from app.features.importing import task, values
from app.features.importing.process import ImportProcess, import_file, shadows_packages
from app.features.importing.values import (
    ImportModel,
    ImportTimeoutError,
    ModelImportError,
)
from app.sources.spec import InputSpec, SourceSpec
from tests.engine.test_child import alive, wait_for
from tests.support import own_code
from tests.util.test_tensor_files import KINDS, hold_refused

HEAD = "import torch\nfrom torch import nn\n"
NET = """class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.fc = nn.Linear(4, width)
    def forward(self, x):
        %s
        return self.fc(x)
"""
# What takes any number of inputs cannot be one node of its own code.
STARRED = (NET % "x = xs[0] if xs[0].sum() > 0 else -xs[0]").replace(
    "(self, x)", "(self, *xs)"
)


def asked(
    folder: Path, text: str, name: str = "Net", call: bool = False, **arguments: object
) -> ImportModel:
    file = folder / "net.py"
    file.write_text(HEAD + text)
    own_code.trust(f"{file}:{name}")
    return ImportModel(
        SourceSpec("file", str(file), name, call), arguments, (InputSpec((2, 4)),)
    )


@pytest.mark.parametrize(
    ("text", "code", "entry"),
    [
        ("import no_such_package\n" + NET % "pass", "module_not_found", ""),
        ("input()\n" + NET % "pass", "asks_for_input", ""),
        (STARRED, "data_dependent", ""),
        (NET % "x = torch.cat([x, x], 1)", "input_not_accepted", "inputs"),
        (NET.replace("self, x", "self, x, y") % "pass", "inputs", "inputs"),
        (NET.replace("width=3", "width, *, depth") % "pass", "arguments", "arguments"),
        ("Net = 3", "unknown_model", ""),
        ("import os\nos._exit(3)", "process_died", ""),
        ("raise KeyError('mine')", "own_code", ""),
    ],
)
def test_each_refusal_has_a_code_by_which_its_cure_is_known(
    tmp_path: Path, text: str, code: str, entry: str
) -> None:
    with pytest.raises(ModelImportError) as refused:
        import_file(asked(tmp_path, text), tmp_path)
    assert refused.value.code == code and "\n" not in str(refused.value)
    where, cure = values.cure_of(refused.value)
    assert where == entry and bool(cure) == (
        code not in ("unknown_model", "process_died", "own_code")
    )


@pytest.mark.parametrize(
    ("folder", "module"), [("mine", "."), ("mine/deeper", ".."), ("package", ".")]
)
def test_relative_imports_work_as_in_python_with_and_without_an_init(
    tmp_path: Path, folder: str, module: str
) -> None:
    place = tmp_path / folder
    place.mkdir(parents=True)
    (tmp_path / folder.partition("/")[0] / "widths.py").write_text("WIDTH = 3\n")
    if folder == "package":
        (place / "__init__.py").write_text("")
    request = asked(
        place, f"from {module}widths import WIDTH\n" + NET % "x = x * WIDTH"
    )
    assert import_file(request, tmp_path).graph.nodes


def test_relative_imports_in_a_folder_that_is_no_package_are_refused_with_a_cure(
    tmp_path: Path,
) -> None:
    (tmp_path / "my-net").mkdir()
    with pytest.raises(ModelImportError) as refused:
        import_file(
            asked(tmp_path / "my-net", "from .widths import WIDTH\n" + NET % "pass"),
            tmp_path,
        )
    assert (
        refused.value.code == "relative_import"
        and "Give the file's folder a name" in values.with_cure(refused.value)
    )


def test_a_class_of_such_a_package_that_cannot_be_followed_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "widths.py").write_text("WIDTH = 3\n")
    text = "from .widths import WIDTH\n" + NET % "x = x if x.sum() > 0 else -x"
    with pytest.raises(
        ModelImportError,
        match="Net is in the package mine, which a project does not include",
    ):
        import_file(asked(tmp_path / "mine", text), tmp_path)


def test_an_argument_that_nobody_has_is_told_at_the_arguments(tmp_path: Path) -> None:
    with pytest.raises(ModelImportError) as refused:
        import_file(asked(tmp_path, NET % "pass", height=3), tmp_path)
    assert refused.value.code == "constructor"
    assert "--args" in values.with_cure(refused.value) and "height" in str(
        refused.value
    )


def test_a_crash_in_native_code_is_told_with_the_line_of_the_model(
    tmp_path: Path,
) -> None:
    text = "import os\ndef crash():\n    os.abort()\ncrash()\n" + NET % "pass"
    with pytest.raises(ModelImportError) as refused:
        import_file(asked(tmp_path, text), tmp_path)
    assert refused.value.code == "process_died"
    assert sys.platform == "win32" or "SIGABRT in crash, line 5 of net.py" in str(
        refused.value
    )


def test_what_is_stopped_ends_at_once_with_its_process(tmp_path: Path) -> None:
    request = asked(
        tmp_path,
        f"import time\nopen({str(tmp_path / 'mark')!r}, 'w').close()\ntime.sleep(600)\n",
    )
    process = ImportProcess(request.source.where)
    try:
        with pytest.raises(ModelImportError) as refused:
            process.read(request, tmp_path, cancelled=(tmp_path / "mark").exists)
    finally:
        process.close()
    assert refused.value.code == "cancelled"
    wait_for(lambda: not alive(process.pid))


def test_what_takes_too_long_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(ImportTimeoutError) as refused:
        import_file(asked(tmp_path, "while True: pass"), tmp_path, patience=3)
    assert refused.value.code == "timeout"


def test_it_says_how_it_goes_on_and_keeps_the_files_that_it_wrote(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    store = tmp_path / "store"
    project = import_file(
        asked(tmp_path, NET % "print('not said')", width=5), store, tell=told.append
    )
    assert told[0] == "Making Net" and any("outputs" in words for words in told)
    assert project.origin is not None and project.origin.checked
    kept = Path(project.training.start.path)
    assert kept.parent.is_relative_to(store) and kept.is_file()


def test_a_fresh_process_is_for_folders_with_a_module_of_an_installed_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other model runs in a forked one, at once: also from the folder one stands in, with its bytecode."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    (tmp_path / "net_of_mine.py").touch()
    for name in (
        "__pycache__",
        "tests",
        "torch",
    ):  # Python imports the package and not a folder without a module
        (tmp_path / name).mkdir()
    assert not shadows_packages(tmp_path)
    (tmp_path / "torch" / "__init__.py").touch()
    assert shadows_packages(tmp_path)


def _torchvision(path: Path) -> None:
    """Weights that torchvision downloads lie in a folder of torch's."""
    hub = path.parent / "hub" / "checkpoints"
    hub.mkdir(parents=True)
    path.rename(hub / path.name)
    known = SimpleNamespace(
        DEFAULT=SimpleNamespace(url=f"https://example.org/{path.name}", meta={})
    )
    models = SimpleNamespace(
        get_model_weights=lambda _name: known,
        get_model=lambda *_, **__: nn.Linear(2, 2),
    )
    torch.hub.set_dir(str(hub.parent))
    task._with_known_weights(models, "net", {})


@pytest.mark.parametrize("kind", KINDS)
def test_downloaded_weights_that_cannot_be_loaded_are_refused_in_our_own_words(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    hold_refused(_torchvision, ModelImportError, tmp_path, kind)
