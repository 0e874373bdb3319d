"""The manual: its command lines are taken by the program, its links lead somewhere, its made pages have everything."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from app import cli
from app.features.lessons import lesson as lessons
from app.training.settings import PARAMS
from app.util import language
from scripts.manual import made_pages

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What stands for a file, a name or a number in a command line of the manual.
EXAMPLES = {
    "N": "3",
    "T": "t",
    "F": "f.svg",
    "D": "cpu",
    "S": "1",
    "MIB": "512",
    "JSON": "{}",
    "R": "0",
    "STEP": "3",
}


def expanded(line: str) -> str:
    """Return a command line with all that is optional in it, and the first of what can be chosen.

    >>> expanded("tapedeck fit P|SOURCE [--memory 8GiB [--json]] [--input [NAME=]2x3] --out F.{svg,pdf} ...")
    'tapedeck fit P --memory 8GiB --json --input 2x3 --out F.svg '
    """
    line = re.sub(r"\s*\.\.\.", "", line)
    line = re.sub(r"\{(\w+)(,\w+)+\}", r"\1", line)
    while (simpler := re.sub(r"(?<=[ \w=:])\[([^\[\]]*)\]", option, line)) != line:
        line = simpler
    return re.sub(r"(?<!\S)([\w.:@-]+)(\|[\w.:@-]+)+", r"\1", line)


def option(match: re.Match[str]) -> str:
    content = match[1]
    return "" if content.endswith("=") or content.startswith(":") else content


def command_lines() -> list[tuple[str, str]]:
    """Return each command line of a block of the manual, with its page."""
    lines = []
    for file in FILES:
        for block in re.findall(r"```\n(.*?)```", file.read_text("utf-8"), re.DOTALL):
            for line in re.findall(
                r"(?:^|   )(tapedeck .+?)(?=\s{2,}|$)", block, re.MULTILINE
            ):
                if ":" not in line.split()[1]:  # else it opens a file in the window
                    lines.append((file.relative_to(ROOT).as_posix(), line))
    return lines


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_every_command_line_of_the_manual_is_taken_by_its_command(
    page: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "choose", lambda _code: None)  # for this process
    name, *arguments = [
        EXAMPLES.get(each, each) for each in shlex.split(expanded(line))[1:]
    ]
    cli._parser(name).parse_args([name, *arguments])


def test_every_option_that_a_page_names_is_one_of_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = {
        (call.split()[0], option)
        for file in FILES
        for call in re.findall(r"`tapedeck ([a-z][^`]*)`", file.read_text("utf-8"))
        for option in re.findall(r"(?<= )--?[a-z][a-z-]*", call)
    }
    assert len(named) > 40
    help_of = {}
    for command in {command for command, _ in named}:
        with pytest.raises(SystemExit):
            cli.run([command, "--help"])
        help_of[command] = capsys.readouterr().out
    assert not [
        (command, option)
        for command, option in named
        if not re.search(rf"{option}\b", help_of[command])
    ]


def test_every_link_of_a_page_leads_to_a_file() -> None:
    made = {ROOT / "docs" / name for name in made_pages()}
    links = [
        (file, link)
        for file in FILES
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", file.read_text("utf-8"))
        if "//" not in link
    ]
    assert len(links) > 30
    assert not [
        (file.name, link)
        for file, link in links
        if not (file.parent / link).exists()
        and (file.parent / link).resolve() not in made
    ]


def test_the_made_pages_have_every_command_setting_and_step_of_a_lesson() -> None:
    pages = made_pages()
    for command in cli.commands():
        assert f"## tapedeck {command}\n" in pages["reference/commands.md"]
        assert f"usage: tapedeck {command} " in pages["reference/commands.md"]
    for name in PARAMS:
        assert f"| `{name}` |" in pages["reference/settings.md"]
    for lesson in lessons.bundled():
        page = pages[f"tutorials/{lesson.name}.md"]
        assert all(f"## {step.title}" in page for step in lesson.steps)
        assert all(f"- {goal.text}\n" in page for goal in lesson.goals)
