"""Layers of a person's own: read off the text, run only once they are trusted, and then like torch's own."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from app.builder.analysis import analyse
from app.builder.blocks import Block, with_blocks
from app.builder.catalog import custom, custom_calls
from app.builder.catalog.catalog import catalog
from app.builder.catalog.custom_classes import LayerClass, LayerTextError, read_classes
from app.builder.literals import DType
from app.source import layer_files, layer_modules
from app.source.compiled import load_class, make_module
from app.source.layer_files import LayerFile, LayerFileError, UntrustedError
from app.training.config import TrainingConfig
from app.training.events import Failed
from app.training.job import Job
from app.training.loop import train
from app.util.frozen import FrozenMap
from tests.support import own_layers_nets as own

HEAD = """import math
import torch
from typing import *
from torch import nn, Tensor
from torch.autograd import Function
"""


pytestmark = pytest.mark.usefixtures("nothing_trusted")


def one(text: str) -> LayerClass:
    """The last class of a text."""
    return read_classes(HEAD + text, catalog())[-1]


def constructor(arguments: str, before: str = "") -> LayerClass:
    body = f"class A(nn.Module):\n def __init__(self, {arguments}): pass\n def forward(self, x): return x\n"
    return one(before + body)


# --- Reading ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "kind", "default"),
    [
        ("n: int", "int", None),
        ("n: int = 3", "int", 3),
        ("n: 'int' = 3", "int", 3),
        ("p: float = 1", "float", 1.0),
        ("p: float = -math.inf", "float", -float("inf")),
        ("bias: bool = True", "bool", True),
        ("name: str = 'a b'", "str", "a b"),
        ("n: Optional[int] = None", "int", None),
        ("n: int | None = None", "int", None),
        ("k: int | tuple[int, int] = 3", "ints", 3),
        ("k: Tuple[int, int] = (3, 5)", "ints", (3, 5)),
        ("k: list[int] = [3, 5]", "ints", (3, 5)),
        ("mode: Literal['a', 'b'] = 'a'", "choice", "a"),
        ("dtype: torch.dtype = torch.float64", "dtype", DType("float64")),
        ("n=WIDTH", "int", 64),
        ("p=0.5", "float", 0.5),
        ("flag=False", "bool", False),
        ("n", "value", None),
        ("n=None", "value", None),
        ("k=(1, 2)", "ints", (1, 2)),
    ],
)
def test_parameters_are_read_off_annotations_and_defaults(
    argument: str, kind: str, default: object
) -> None:
    (param,) = constructor(argument, "WIDTH = 64\n").params
    assert (param.kind, param.default) == (kind, default)
    assert param.required is ("=" not in argument)


def test_what_no_form_can_show_keeps_its_default_or_makes_the_class_unusable() -> None:
    kept = constructor("n: int, act=nn.ReLU(), scale: Callable = torch.sigmoid")
    assert (
        [param.name for param in kept.params] == ["n"]
        and kept.kept == ("act", "scale")
        and not kept.reason
    )
    words = "act: nn.Module of __init__ cannot be edited here; give it a default"
    assert constructor("act: nn.Module").reason == words
    assert (
        "*xs"
        in one("class A(nn.Module):\n def forward(self, *xs): return xs[0]").reason
    )
    assert one("class A(nn.Module):\n pass").reason == "it has no forward"


def test_classes_are_found_by_their_bases_whatever_they_are_called() -> None:
    text = """
import torch.nn as tnn
from torch.nn import Module as M
class A(tnn.Module):
    def __init__(self, n: int = 1): pass
    def forward(self, x): return x
class B(A): pass
class C(M):
    def forward(self, x): return x
class D(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x
class E(nn.Linear): pass
class F(nn.Sequential):
    def __init__(self, a: int): super().__init__(nn.Linear(a, a))
class Plain: pass
class Data(Exception): pass
class _Helper(nn.Module): pass
class Loop(Pool): pass
class Pool(Loop): pass
"""
    found = {layer.name: layer for layer in read_classes(HEAD + text, catalog())}
    assert list(found) == ["A", "B", "C", "D", "E", "F"]
    assert [param.name for param in found["B"].params] == ["n"]
    assert [param.name for param in found["E"].params][:2] == [
        "in_features",
        "out_features",
    ]
    assert found["D"].kind == "function"
    assert not any(layer.reason for layer in found.values())


def test_inputs_and_outputs_are_those_of_forward() -> None:
    layer = one("""
class A(nn.Module):
    def forward(self, x: Tensor, mask: Optional[Tensor] = None, power: int = 2, *, state):
        def inner():
            return 1
        if power:
            return x, mask
        return h, self.cell
""")
    assert [
        (port.name, port.kind, port.required, port.named) for port in layer.inputs
    ] == [
        ("x", "tensor", True, False),
        ("mask", "tensor", False, True),
        ("state", "any", True, True),
    ]
    assert [(param.name, param.call) for param in layer.params] == [("power", True)]
    assert [port.name for port in layer.outputs] == ["x", "mask"]
    assert (
        len(
            one(
                "class A(nn.Module):\n def forward(self, x):\n  if x: return x, x\n  return x"
            ).outputs
        )
        == 1
    )


@pytest.mark.parametrize(
    "text", ["x = (", "\0", "(" * 900 + ")" * 900, "class A(\n", "def f(:"]
)
def test_a_text_that_is_no_python_is_said_in_words(text: str) -> None:
    with pytest.raises(LayerTextError, match="Python"):
        read_classes(text, {})


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.txt", b"", "must end in .py"),
        ("gone.py", None, "was not found in"),
        ("latin.py", "x = 'é'".encode("latin-1"), "not in UTF-8"),
        ("says.py", b"# coding: latin-1\nx = '\xc3\xa9'\n", "save it as UTF-8"),
        ("odd.py", b"# coding: no-such-thing\n", "not in UTF-8"),
        ("big.py", b"#" * (custom.LARGEST_FILE + 1), "larger than 1 MiB"),
        ("broken.py", b"class A(\n", "line 1 is not valid Python"),
        ("empty.py", b"", "defines no subclass of nn.Module"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(
    tmp_path: Path, name: str, data: bytes | None, words: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    found = custom.read_file(tmp_path / name)
    assert words in found.problem and not found.specs
    assert custom.read_file(tmp_path).problem.endswith("must end in .py")


def test_a_module_never_hides_another(tmp_path: Path) -> None:
    names = [
        custom.module_name(Path(name))
        for name in ("my layers.py", "math.py", "torch.py", "model.py", "class.py")
    ]
    assert names == [
        "my_layers",
        "math_layers",
        "torch_layers",
        "model_layers",
        "class_",
    ]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = custom.read_files(
        [own.write(tmp_path / "a"), own.write(tmp_path / "b", name="My_Layers.py")]
    )
    assert first.specs and not second.specs
    assert "rename one" in second.problem


# --- Nothing runs before it is trusted --------------------------------------------------------------------------


def test_nothing_of_a_file_runs_before_it_is_trusted(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    path = own.write(tmp_path, own.marking(marker))
    ops = own.ops_with(path)
    answer = analyse(own.net(), ops)
    waiting = [problem for problem in answer.problems if problem.severity == "error"]
    assert {problem.message for problem in waiting} == {
        "my_layers.py is not trusted yet"
    }
    assert all(problem.cures[0].opens == "my_layers" for problem in waiting)
    assert [port.name for port in ops[own.SCALED].inputs] == ["x"] and ops[
        own.SCALED
    ].param("features")
    file = custom.read_file(path).file
    assert file is not None
    with pytest.raises(UntrustedError):
        layer_modules.load(file)
    with pytest.raises(UntrustedError):
        load_class(
            replace(answer.source, text="from my_layers import Scaled\n", files=(file,))
        )
    with pytest.raises(UntrustedError):
        custom_calls.resolve(ops[own.SCALED].target)
    assert not marker.exists()
    own.trust(path)
    assert analyse(own.net(), own.ops_with(path)).runnable
    assert marker.exists()


def test_an_edit_is_another_text_and_waits_again(tmp_path: Path) -> None:
    path = own.write(tmp_path)
    own.trust(path)
    before = own.ops_with(path)
    assert analyse(own.net(), before).runnable
    own.write(
        tmp_path, own.LAYERS.replace("return x * self.weight", "return x + self.weight")
    )
    after = own.ops_with(path)
    assert (
        after[own.SCALED].kind == "unknown"
        and after[own.SCALED].target != before[own.SCALED].target
    )
    assert not analyse(own.net(), after).runnable


def test_a_hash_belongs_to_its_text() -> None:
    with pytest.raises(ValueError, match="is not the hash"):
        LayerFile("m", "x = 1", layer_files.digest("x = 2"))


# --- Running ----------------------------------------------------------------------------------------------------


def test_trusted_classes_have_shapes_parameters_and_lines_in_the_code(
    tmp_path: Path,
) -> None:
    path = own.write(tmp_path)
    own.trust(path)
    answer = analyse(own.net(), own.ops_with(path))
    assert answer.runnable and not answer.problems
    assert str(answer.values["n5", 0]) == "N×16" and answer.parameters["n5"] == 16
    assert "from my_layers import Clip, Scaled\n" in answer.source.text
    assert "self.scaled5 = Scaled(16)" in answer.source.text
    assert "x = Clip.apply(x, -1.0, 0.5)" in answer.source.text
    assert "x = self.scaled5(x, power=2)" in answer.source.text
    assert [file.name for file in answer.source.files] == ["my_layers.py"]
    assert "my_layers" not in sys.modules


def test_two_steps_of_training_equal_plain_torch(tmp_path: Path) -> None:
    path = own.write(tmp_path)
    own.trust(path)
    source = analyse(own.net(), own.ops_with(path)).source
    plain: dict[str, object] = {}
    text = source.text.replace("from my_layers import Clip, Scaled\n", "")
    exec(own.LAYERS, plain)
    exec(text, plain)
    images, labels = torch.rand(32, 1, 8, 8), torch.randint(10, (32,))

    def trained(make) -> dict[str, torch.Tensor]:
        torch.manual_seed(3)
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        return model.state_dict()

    mine, theirs = trained(lambda: make_module(source)), trained(plain["Net"])
    assert mine.keys() == theirs.keys() and all(
        torch.equal(mine[name], theirs[name]) for name in mine
    )


def test_names_that_the_code_has_already_are_imported_under_another(
    tmp_path: Path,
) -> None:
    text = HEAD + "class Net(nn.Module):\n def forward(self, x): return 2 * x\n"
    first = own.write(tmp_path, text, "one.py")
    second = own.write(tmp_path, text.replace("2 *", "5 *"), "two.py")
    for path in (first, second):
        own.trust(path)
    graph = own.chain(
        [
            ("input", {"shape": (3,)}),
            ("custom.one:Net", {}),
            ("custom.two:Net", {}),
            ("output", {}),
        ]
    )
    source = analyse(graph, own.ops_with(first, second)).source
    assert "from one import Net as Net2\nfrom two import Net as Net3\n" in source.text
    assert make_module(source)(torch.ones(1, 3)).tolist() == [[10.0, 10.0, 10.0]]


def test_two_versions_of_a_file_never_mix(tmp_path: Path) -> None:
    graph = own.chain([("input", {"shape": (3,)}), ("custom.v:A", {}), ("output", {})])
    sources = []
    for factor in (2, 5):
        text = (
            HEAD + f"class A(nn.Module):\n def forward(self, x): return {factor} * x\n"
        )
        path = own.write(tmp_path, text, "v.py")
        own.trust(path)
        sources.append(analyse(graph, own.ops_with(path)).source)
    assert sources[0].text == sources[1].text and not sources[0].same_net(sources[1])
    models = [make_module(source) for source in (*sources, sources[0])]
    assert [model(torch.ones(1, 1)).item() for model in models] == [2.0, 5.0, 2.0]


def test_a_class_works_inside_a_block_and_several_outputs_have_names(
    tmp_path: Path,
) -> None:
    text = (
        HEAD
        + "class Two(nn.Module):\n def forward(self, x):\n  h = x.sum(1)\n  return x, h\n"
    )
    path = own.write(tmp_path, text, "two.py")
    own.trust(path)
    inner = own.chain(
        [("input", {"shape": (3,)}), ("custom.two:Two", {}), ("output", {})]
    )
    blocks = FrozenMap({"Own": Block("Own", inner)})
    graph = own.chain([("input", {"shape": (3,)}), ("block.Own", {}), ("output", {})])
    graph = replace(
        graph,
        edges=tuple(
            replace(e, port="input1") if e.target == "n2" else e for e in graph.edges
        ),
    )
    ops = with_blocks(own.ops_with(path), blocks)
    answer = analyse(graph, ops)
    assert answer.runnable, answer.problems
    assert [port.name for port in ops["custom.two:Two"].outputs] == ["x", "h"]
    assert make_module(answer.source)(torch.ones(2, 3)).shape == (2, 3)


def test_what_meta_tensors_cannot_do_is_run_on_small_real_ones(tmp_path: Path) -> None:
    body = "  return torch.from_numpy(x.detach().numpy().repeat(2, axis=1))\n"
    made = " def __init__(self):\n  super().__init__()\n  self.fc = nn.Linear(4, 4)\n"
    path = own.write(
        tmp_path,
        HEAD + "class Twice(nn.Module):\n" + made + " def forward(self, x):\n" + body,
        "n.py",
    )
    own.trust(path)
    graph = own.chain(
        [("input", {"shape": (3, 4)}), ("custom.n:Twice", {}), ("output", {})]
    )
    before = torch.random.get_rng_state()
    answer = analyse(graph, own.ops_with(path))
    assert str(answer.values["n2", 0]) == "N×6×4"
    assert torch.equal(before, torch.random.get_rng_state())


# --- Files that misbehave ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero (line 6)"),
        (
            "import nothing_of_this_name",
            "No module named 'nothing_of_this_name' (line 6)",
        ),
        ("raise SystemExit(3)", "it ends the program (sys.exit)"),
        ("import os; os._exit(0)", "it ends the process with code 0"),
    ],
)
@pytest.mark.usefixtures("forked_trials")
def test_a_file_that_does_not_run_is_an_error_at_its_nodes(
    tmp_path: Path, line: str, words: str
) -> None:
    text = HEAD + line + "\nclass A(nn.Module):\n def forward(self, x): return x\n"
    path = own.write(tmp_path, text, "bad.py")
    layer_files.allow(layer_files.digest(text))
    graph = own.chain(
        [("input", {"shape": (3,)}), ("custom.bad:A", {}), ("output", {})]
    )
    (problem,) = analyse(graph, own.ops_with(path)).errors
    assert problem.node == "n2" and words in problem.message


def test_a_file_that_never_ends_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_modules, "PATIENCE", 1.0)
    file = LayerFile.from_text("slow", "while True: pass\n")
    layer_files.allow(file.sha256)
    with pytest.raises(LayerFileError, match="not done importing after 1 seconds"):
        layer_modules.load(file)


def test_what_a_file_prints_and_draws_is_not_noticed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = LayerFile.from_text(
        "loud", "import torch\nprint('hello')\ntorch.rand(3)\nK = torch.ones(2)\n"
    )
    layer_files.allow(file.sha256, tried=True)
    before = torch.random.get_rng_state()
    with torch.device("meta"):
        module = layer_modules.load(file)
    assert module.K.device.type == "cpu"
    assert torch.equal(before, torch.random.get_rng_state())
    assert "hello" not in capsys.readouterr().out


def test_errors_of_a_class_show_the_line_of_the_file(tmp_path: Path) -> None:
    text = (
        HEAD + "class A(nn.Module):\n def forward(self, x):\n  return x.no_such_thing\n"
    )
    path = own.write(tmp_path, text, "late.py")
    own.trust(path)
    graph = own.chain(
        [("input", {"shape": (3,)}), ("custom.late:A", {}), ("output", {})]
    )
    answer = analyse(graph, own.ops_with(path))
    assert (
        "no_such_thing" in answer.errors[0].message
        and "(line 8)" in answer.errors[0].message
    )
    try:
        make_module(answer.source)(torch.ones(1, 3))
    except AttributeError:
        assert "return x.no_such_thing" in traceback.format_exc()
    leaving = own.write(tmp_path, text.replace("x.no_such_thing", "exit(3)"), "late.py")
    own.trust(leaving)
    assert "SystemExit" in analyse(graph, own.ops_with(leaving)).errors[0].message


def test_a_layer_that_ends_the_program_ends_the_run_alone(tmp_path: Path) -> None:
    body = "  if self.training:\n   raise SystemExit(3)\n  return x\n"
    path = own.write(
        tmp_path,
        HEAD + "class A(nn.Module):\n def forward(self, x):\n" + body,
        "leaving.py",
    )
    own.trust(path)
    layers = [
        ("nn.Flatten", {}),
        ("custom.leaving:A", {}),
        ("nn.Linear", {"out_features": 10}),
    ]
    graph = own.chain([("input", {"shape": (1, 8, 8)}), *layers, ("output", {})])
    source = analyse(graph, own.ops_with(path)).source
    *_, last = train(Job(source, training=TrainingConfig(epochs=1, device="cpu")))
    assert (
        isinstance(last, Failed) and last.node == "n3" and "SystemExit" in last.message
    )


def test_a_class_that_is_gone_says_so_and_keeps_its_node(tmp_path: Path) -> None:
    path = own.write(tmp_path)
    own.trust(path)
    path.unlink()
    (problem,) = {
        p.message
        for p in analyse(own.net(), own.ops_with(path)).errors
        if p.node == "n5"
    }
    assert problem == f"Scaled cannot be used: my_layers.py was not found in {tmp_path}"
    (problem,) = {
        p.message for p in analyse(own.net(), own.ops_with()).errors if p.node == "n5"
    }
    assert problem == "my_layers.py is not in this project"
