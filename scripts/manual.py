"""Build the manual: the pages of `docs` and those that are made of lessons, parsers, settings, ops and records.

    make docs

The HTML lies in `build/manual`, where *Help > Manual* finds it. A warning of Sphinx ends it with 1. Nothing is fetched.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from itertools import groupby
from pathlib import Path

import msgspec

from app import cli
from app.builder.catalog.catalog import OpSpec, catalog
from app.data.config import DataConfig
from app.features.lessons import lesson as lessons
from app.project import file
from app.training.config import TrainingConfig
from app.util.described import settings_of
from scripts.packages import pulled

HUGE = 2**62  # a bound of what a file can hold, which nobody reaches
ROOT = Path(__file__).resolve().parents[1]
PAGES, BUILT = ROOT / "build" / "pages", ROOT / "build" / "manual"
API = """# The package tapedeck

```{eval-rst}
.. automodule:: tapedeck
   :members:
   :imported-members:
```
"""


def lesson_page(lesson: lessons.Lesson) -> str:
    """Return a lesson as a page, with its goals and without the answers to its questions."""
    text = [f"# {lesson.title}", f"About {lesson.minutes} minutes. {lesson.summary}"]
    for step in lesson.steps:
        text += [f"## {step.title}", step.text]
        text += ["\n".join(f"- {goal.text}" for goal in step.goals)]
    text += ["In the window: *Help > Lessons*, which sees what you did."]
    return "\n\n".join(filter(None, text)) + "\n"


def command_pages() -> Iterator[str]:
    """Yield what each command says with `--help`."""
    yield "# Commands\n\nAs `--help` has them; what they are for: [Without a window](../howto/commands.md).\n"
    for name in cli.commands():
        with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
            cli.run([name, "--help"])
        yield f"## tapedeck {name}\n\n```text\n{printed.getvalue().rstrip()}\n```\n"


def cell(value: object) -> str:
    """Return a value as the text of a cell."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [[*heads]]
    lines += [["-"] * len(lines[0]), *([*map(cell, row)] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def bounds(meta: msgspec.Meta) -> str:
    """Return the bounds of a number.

    >>> bounds(msgspec.Meta(ge=1, le=10_000_000)), bounds(msgspec.Meta(gt=0, le=1e300))
    ('≥ 1, ≤ 10,000,000', '> 0')
    """
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    stated = {sign: getattr(meta, name) for name, sign in signs.items()}
    return ", ".join(
        f"{sign} {bound:,}"
        for sign, bound in stated.items()
        if bound is not None and bound < HUGE
    )


def settings_page() -> str:
    """Return the settings by section, as forms and `--set` have them."""
    text = "# Settings\n\nThe training settings of a project, in the window and for `--set NAME=VALUE`.\n"
    for kind, title in ((TrainingConfig, ""), (DataConfig, "Data: ")):
        default = kind()
        described = settings_of(kind).items()
        for section in dict.fromkeys(of.about.section for _, of in described):
            rows = [
                (
                    f"`{name}`",
                    f"`{getattr(default, name)!r}`",
                    " ".join(f"`{choice}`" for choice in of.choices if choice)
                    or bounds(of.meta),
                    of.about.doc,
                )
                for name, of in described
                if of.about.section == section
            ]
            heads = ("setting", "default", "values", "what it does")
            text += f"\n## {title}{section}\n\n{table(heads, rows)}"
    return text


def ops_page() -> str:
    """Return every op of the palette with its inputs, and its parameters with their defaults."""

    def row(op: OpSpec) -> Iterator[str]:
        yield f"`{op.key}`"
        yield ", ".join(port.name for port in op.inputs)
        defaults = (
            msgspec.to_builtins(param.default, enc_hook=repr) for param in op.params
        )
        yield ", ".join(
            f"`{param.name}={default!r}`"
            for param, default in zip(op.params, defaults, strict=True)
        )

    ops = sorted(catalog().values(), key=lambda op: (op.category, op.key))
    text = f"# Ops\n\nThe {len(ops)} operations of the palette, as torch {catalog().torch_version} has them.\n"
    for category, group in groupby(ops, lambda op: op.category):
        text += f"\n## {category}\n\n"
        text += table(("op", "inputs", "parameters"), map(row, group))
    return text


def file_format_page() -> str:
    """Return the schema of a project file."""
    schema = json.dumps(msgspec.json.schema(file._ProjectRecord), indent=1)
    return (
        "# Files\n\nA project is a `.tape` file: JSON in UTF-8, data that is never run. Its field `tapedeck` is the "
        f"version of the format, {file.VERSION} now; older ones are read and written anew as this one, a newer one is "
        "refused with its version. A file with an unknown field or a value out of its bounds is refused by a sentence "
        f"that says where. This is its JSON Schema, made of the records that read it:\n\n```json\n{schema}\n```\n"
    )


def licences_page() -> str:
    """Return what a wheel pulls, with licences."""
    text = "# Packages and licences\n\nWhat a wheel pulls on Linux with torch for the CPU; other builds bring more.\n\n"
    return text + table(("package", "version", "licence"), pulled())


def made_pages() -> dict[str, str]:
    """Return the pages that nobody writes, by their path."""
    tutorials = {
        f"tutorials/{lesson.name}.md": lesson_page(lesson)
        for lesson in lessons.bundled()
    }
    return tutorials | {
        "reference/commands.md": "\n".join(command_pages()),
        "reference/settings.md": settings_page(),
        "reference/ops.md": ops_page(),
        "reference/file_format.md": file_format_page(),
        "reference/licences.md": licences_page(),
        "reference/api.md": API,
    }


def main() -> int:
    from sphinx.cmd.build import build_main

    os.environ["COLUMNS"] = "88"  # of what argparse writes
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.rmtree(BUILT, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    shutil.copy(ROOT / "resources" / "icons" / "tapedeck.svg", PAGES / "icon.svg")
    for name, text in made_pages().items():
        (PAGES / name).parent.mkdir(exist_ok=True)
        (PAGES / name).write_text(text, "utf-8")
    doctrees = str(ROOT / "build" / "doctrees")
    status: int = build_main(
        ["-W", "--keep-going", "-E", "-q", "-d", doctrees, str(PAGES), str(BUILT)]
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
