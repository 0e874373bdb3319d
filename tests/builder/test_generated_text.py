"""What the program writes is formatted, imports what it uses, uses what it makes, and runs by itself."""

from __future__ import annotations

import ast
import builtins
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from app.builder.analysis import analyse
from app.builder.codegen.call_code import WIDTH
from app.project import custom_layers, file
from app.source.compiled import make_module, random_inputs
from app.source.generated import Source
from app.util.resources import path as resource_path
from tests.support.forked_python import run_forked

EXAMPLES = sorted((resource_path() / "examples").glob("*.tape"))


def of_example(path: Path) -> Source:
    project = file.read(path)
    return analyse(project.graph, custom_layers.ops_of(project)).source


def ruff(text: str, *command: str) -> str:
    """What ruff has to say of a text, with its own defaults."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--isolated",
            "--line-length",
            str(WIDTH),
            "-",
        ],
        input=text,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_text_is_formatted_and_uses_all_that_it_imports_and_makes(
    path: Path,
) -> None:
    hold_clean(of_example(path))


def hold_clean(source: Source) -> None:
    """Fail unless a text is formatted, imports what it uses and uses what it makes."""
    assert not ruff(source.text, "format", "--diff")
    assert not ruff(source.text, "check", "--select", "F,E,W,I")
    tree = ast.parse(source.text)
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    read = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert imported <= read and imported <= {"torch", "F", "nn", "ops"}
    bound = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert read <= imported | bound | set(dir(builtins))


CLEAN = """
import importlib.util, json, sys
sys.modules.update({name: None for name in ["app", *sys.modules] if name.partition(".")[0] in ("app", "tests")})
spec = importlib.util.spec_from_file_location("net", sys.argv[1])
net = importlib.util.module_from_spec(spec)
spec.loader.exec_module(net)
print(json.dumps([list(value.shape) for value in net.Net().state_dict().values()]))
"""


def test_the_text_runs_where_nothing_of_the_program_is(tmp_path) -> None:
    source = of_example(EXAMPLES[0])
    (tmp_path / "net.py").write_text(source.text)
    (tmp_path / "clean.py").write_text(CLEAN)
    done = run_forked(tmp_path / "clean.py", str(tmp_path / "net.py"))
    assert not done.returncode, done.stderr
    assert json.loads(done.stdout) == [
        list(value.shape) for value in make_module(source).state_dict().values()
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_takes_what_it_says(path: Path) -> None:
    source = of_example(path)
    given = random_inputs(source, 2)
    output = make_module(source)(*given)
    assert given and len(output if isinstance(output, torch.Tensor) else output[0]) == 2
