"""What `scripts.house` counts, on a small tree that is made for it."""

import json
import subprocess
from pathlib import Path

import pytest

import scripts.house
from scripts.house import House, main

FILES = {
    "README.md": "Four words, no more.\n",
    "tapedeck/__init__.py": "",
    "app/__init__.py": '"""The program."""\n',
    "app/compare/__init__.py": '"""Two models."""\n',
    "app/compare/values.py": '"""Values."""\n\nLIMIT = 3  # a comment\n',
    "app/compare/report.py": (
        "from typing import TYPE_CHECKING\n\n"
        "if TYPE_CHECKING:\n    from app.views.compare import page\n\n\n"
        "def report(given, height):\n"
        '    """Return the height."""\n'
        "    from app.compare import values\n\n"
        "    told = given * height\n"
        "    return told, values.LIMIT\n"
    ),
    "app/views/compare/page.py": "from app.compare import report\n\nTEXT = (report, 1)  # fmt: skip\n",
    "app/training/gradients.py": (
        "import torch\n\nfrom app.training import rate\n\n\n"
        "def norm_of(gradient):\n    return torch.linalg.vector_norm(gradient), rate.RATE\n"
    ),
    "app/training/rate.py": (
        "RATE = 0.1\n\n\ndef later():\n    from app.training import gradients\n    return gradients\n"
    ),
}


@pytest.fixture
def house(tmp_path: Path) -> House:
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return House(tmp_path)


def test_lines_tokens_and_code_lines_leave_out_comments_and_docstrings(
    house: House,
) -> None:
    _, tokens, code_lines = house.sizes()
    assert [each.string for each in house.significant("app.compare.values")] == [
        "LIMIT",
        "=",
        "3",
    ]
    assert (tokens, code_lines) == (3 + 13 + 16 + 27 + 40, 1 + 2 + 4 + 4 + 7)


def test_figures_of_a_small_tree(house: House) -> None:
    counted = {name: figure.value for name, figure in house.figures().items()}
    assert {
        name: counted[name]
        for name in counted
        if name not in {"lines", "tokens", "density"}
    } == {
        "modules": 8,
        "folders": 5,
        "skips": 1,
        "rooms": 0,
        "widest": 0,
        "lone": 0,
        "late": 2,
        "weak": pytest.approx(100 * 2 / 7, abs=0.1),
        "circles": 1,
        "typing_circles": 2,
        "registries": 0,
        "norms": 1,
        "small": 5,
        "empty": 3,
        "readme": 4,
    }


def test_a_table_that_names_modules_or_commands_is_a_registry(house: House) -> None:
    modules = house.root / "app" / "names.py"
    modules.write_text(
        'NAMES = "' + " ".join(f"part{number}" for number in range(8)) + '"\n', "utf-8"
    )
    for number in range(8):
        (house.root / "app" / f"part{number}.py").write_text("", "utf-8")
    keys = "".join(f'Action("key{number}")\n' for number in range(8))
    (house.root / "app" / "declared.py").write_text(keys, "utf-8")
    table = ", ".join(f'"key{number}"' for number in range(8))
    (house.root / "app" / "menus.py").write_text(f"MENUS = [{table}]\n", "utf-8")
    (house.root / "app" / "button.py").write_text('commands.trigger("key1")\n', "utf-8")
    assert House(house.root).registries() == [
        "app.menus:1",
        "app.names:1",
        'trigger("...") in 1 modules',
    ]


def test_what_one_feature_alone_reads_is_named_through_others_too(house: House) -> None:
    lines = {
        "app/features/sweep/page.py": "from app.training import grid, rate\n",
        "app/training/grid.py": "from app.training import points\n",
        "app/training/points.py": "",
        "app/features/sweep/asks.py": "from app.engine.requests import grids\n",
        "app/engine/requests/grids.py": "",
        "app/engine/tasks/grids.py": "from app.engine.requests import grids\n",
        "app/features/panels/page.py": "from app.training import rate\n",
    }
    for name, text in lines.items():
        (house.root / name).parent.mkdir(parents=True, exist_ok=True)
        (house.root / name).write_text(text, "utf-8")
    after = House(house.root)
    alone = "training.grid training.points engine.requests.grids".split()
    assert after.lone() == {f"app.{module}": "sweep" for module in alone}
    assert after.rooms_of_features() == {
        "panels": {"features.panels"},
        "sweep": {"features.sweep", "training", "engine"},
    }


def test_a_commit_is_counted_beside_the_working_tree(
    house: House,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_rate.py").write_text("RATES = 2\n")
    monkeypatch.setattr(scripts.house, "ROOT", tmp_path)
    author = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    for command in (
        ("init", "--quiet"),
        ("add", "--all"),
        (*author, "commit", "--quiet", "--message", "first"),
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "app" / "training" / "late.py").write_text("LATE = 1\n")
    assert main(["--beside", "HEAD", "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert counted["now"]["modules"] == counted["HEAD"]["modules"] + 1

    assert main(["--at", "no-such-commit"]) == 2
    assert "no-such-commit" in capsys.readouterr().err
    assert main(["--list", "nothing"]) == 2
    assert "there are lines, tokens" in capsys.readouterr().err
