"""`tapedeck plugin`: begin a package that adds pages, findings, sources and lessons, and list those that are there."""

from __future__ import annotations

import argparse
import keyword
from pathlib import Path
from typing import Any

from app.cli import console
from app.util import resources, shelf

NAME = "example"  # in the files of the template, to be replaced


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "plugin",
        help="begin a package that adds pages, findings, sources and lessons, or list those that are installed",
    )
    parser.add_argument("action", choices=("new", "list"))
    parser.add_argument("folder", metavar="FOLDER", type=Path, nargs="?")
    parser.set_defaults(command=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Carry the command out. Raises CommandError."""
    if options.action == "list":
        return _list()
    if options.folder is None:
        raise console.CommandError("plugin new needs a folder, whose name it gets")
    return _new(options.folder)


def _new(folder: Path) -> int:
    name = folder.resolve().name.lower().replace("-", "_").removeprefix("tapedeck_")
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        raise console.CommandError(
            f"{folder.name} does not name a package: take letters, digits and _, with a letter first"
        )
    if folder.exists() and any(folder.iterdir()):
        raise console.CommandError(f"{folder} is there already and not empty")
    template = resources.path("plugin")
    for path in sorted(template.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".md", ".toml"):
            target = folder / str(path.relative_to(template)).replace(NAME, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_renamed(path.read_text("utf-8"), name), "utf-8")
    print(f"{folder} is written; `pip install -e {folder}` adds it to this program.")
    return 0


def _renamed(text: str, name: str) -> str:
    """Return a file of the template for another name.

    >>> _renamed("class ExampleFeature: 'tapedeck-example'  # tapedeck_example", "my_nets")
    "class MyNetsFeature: 'tapedeck-my-nets'  # tapedeck_my_nets"
    """
    title = name.replace("_", " ").title()
    text = text.replace(f"tapedeck-{NAME}", f"tapedeck-{name.replace('_', '-')}")
    text = text.replace(f"{NAME.title()}Feature", f"{title.replace(' ', '')}Feature")
    return text.replace(NAME, name).replace(NAME.title(), title)


def _list() -> int:
    for role in ("findings", "feature"):
        for _ in shelf.plugin_modules(role):
            pass
    for package, folder in shelf.plugins().items():
        print(f"{package}  {folder}")
    for package, error in shelf.broken().items():
        console.warn(f"The plugin {package} does not work: {error}")
    if not shelf.plugins():
        print(f"No installed package has an entry point of the group {shelf.GROUP}.")
    return int(bool(shelf.broken()))
