"""Graph breaks and recompiles are named with their line and nothing else is, and what compiling gains is measured."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._inductor.config as inductor
from torch._inductor.exc import InvalidCxxCompiler

from app.engine.requests.observe import request_of
from app.features.compile.compute.compiling import compiled
from app.features.compile.values import Compile, Compiled
from app.main import main
from app.sources.spec import AskedModel, parse_input
from app.util.resources import path as resource_path
from tests.slow import planted_breaks
from tests.support.own_code import trust

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the planted models, in which each test runs."""
    shutil.copy(planted_breaks.MODELS, tmp_path / "models.py")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def without_compiler() -> Iterator[None]:
    """No C++ compiler, which makes it quick."""
    with inductor.patch({"cpp.cxx": ("there-is-none",)}):
        yield


def compiled_model(name: str, *also: str, train: bool = True) -> Compiled:
    source = f"models.py:{name}"
    trust(source)
    model = request_of(AskedModel(source, inputs=("4x8",)))
    return compiled(Compile(model, train, tuple((parse_input(text),) for text in also)))


@pytest.mark.usefixtures("without_compiler")
@pytest.mark.parametrize(
    "name", ["InBlocks", "Recurrent", "Counts", "Worldly", "Normed", "Residual"]
)
def test_planted_breaks_and_recompiles_are_named_with_module_and_line_and_nothing_else(
    name: str,
) -> None:
    result = compiled_model(name)
    named = {("break", entry.path, _line(entry.line)) for entry in result.breaks}
    for entry in result.recompiles:
        line = _line(entry.guard.rpartition("(")[2].removesuffix(")"))
        named.add(("recompile", entry.path, line))
        assert entry.was and entry.now and entry.was != entry.now
    assert named == planted_breaks.planted(name)
    assert all(entry.reason and entry.cure for entry in result.breaks)
    assert result.calls == ("4×8", "5×8", "6×8")


def _line(text: str) -> int:
    file, _, line = text.rpartition(":")
    assert file == "models.py"
    return int(line)


@pytest.mark.usefixtures("without_compiler")
def test_without_a_cpp_compiler_all_but_the_compiled_time_is_there() -> None:
    result = compiled_model("Prints")
    assert len(result.breaks) == 1 and result.graphs == 2
    assert result.eager_seconds and result.compiled_seconds is None
    assert "no working C++ compiler here" in result.remarks[-1]


@pytest.mark.usefixtures("without_compiler")
def test_another_size_that_is_asked_for_is_named_with_both_sizes() -> None:
    Path("models.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.cumsum(1)\n"
    )
    (size,) = compiled_model("Net", "4x9", "4x10").recompiles
    assert (size.was, size.now) == ("8", "9")
    assert size.guard == "x at index 1: size mismatch (models.py:3)"


def test_the_compiled_time_is_measured_with_a_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        pytest.skip("there is no C++ compiler here")
    result = compiled_model("Plain", train=False)
    assert result.compiled_seconds is not None and result.compiled_seconds > 0
    assert (result.breaks, result.recompiles, result.graphs) == ((), (), 1)


@pytest.mark.usefixtures("without_compiler")
def test_a_drawn_net_by_the_command_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["compile", str(resource_path("examples", "digits.tape")), "--json"]) == 0
    )
    record = json.loads(capsys.readouterr().out)
    keys = ["graphs", "breaks", "recompiles", "eager_seconds", "compiled_seconds"]
    assert list(record) == keys
    assert record["graphs"] == 1 and not record["breaks"] + record["recompiles"]
    assert not torch._dynamo.utils.counters["graph_break"]


def test_a_model_that_raises_is_a_sentence_with_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("models.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.view(3, 5)\n"
    )
    source = "models.py:Net"
    assert main(["compile", source, "--input", "4x8", "--trust"]) == 1
    said = capsys.readouterr().err
    assert "line 4 of models.py" in said and len(said.splitlines()) == 1
