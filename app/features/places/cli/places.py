"""`tapedeck places`: list, add, check and remove places."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from app import __version__
from app.cli import console
from app.features.places import values
from app.features.places.line import Line, state_of
from app.features.places.values import Place
from app.util.formatting import bytes_text

LITTLE = 1 << 30  # bytes free


def run(options: argparse.Namespace) -> int:
    """Carry out the action; return 1 if a place that was checked lacks something."""
    if (options.name is None) != (options.action == "list"):
        takes = "takes no name" if options.action == "list" else "takes the NAME of one"
        raise console.CommandError(f"places {options.action} {takes}")
    given = options.ssh or options.python or options.slurm
    if given and options.action != "add":
        raise console.CommandError("--ssh, --python and --slurm are of places add")
    match options.action:
        case "add":
            _add(options)
        case "remove":
            place = values.named(options.name)
            _save({k: v for k, v in values.places().items() if k != place.name})
        case "check":
            return _check(values.named(options.name), options.json)
        case _:
            _list(options.json)
    return 0


def _add(options: argparse.Namespace) -> None:
    if options.ssh is None and options.slurm is None:
        raise console.CommandError(
            "places add NAME --ssh ALIAS: name a Host of ~/.ssh/config, or user@host; or --slurm TEMPLATE, a queue"
        )
    template = values.template_path(str(options.slurm or ""))
    python = options.python or ("python3" if options.ssh else sys.executable)
    place = values.checked(Place(options.name, options.ssh or "", python, template))
    with console.writing(Path(template)):
        note = values.make_template(place)
    if note:
        console.warn(note)
    place.request()
    _save({**values.places(), place.name: place})
    if not options.json:
        print(f"{place.name} is a place. tapedeck places check {place.name} tries it.")


def _save(new: dict[str, Place]) -> None:
    with console.writing(values.file()):
        values.save(new)


def _list(as_json: bool) -> None:
    for place in values.places().values():
        if as_json:
            print(json.dumps(msgspec.to_builtins(place)))
        else:
            said = (place.name, place.ssh, place.python, place.slurm)
            print(console.printable("  ".join(filter(None, said))))


def _check(place: Place, as_json: bool) -> int:
    """Print what a place has, and for what it lacks the cure."""
    with closing(Line(place)) as line:
        facts = line.ask("check", version=__version__, **place.request())
    if "host" not in facts:
        return _not_run(place, facts, as_json)
    lacks = _lacking(place, facts)
    if as_json:
        print(json.dumps({"place": place.name, **facts, "lacks": lacks}))
        return int(bool(lacks))
    torch = facts["torch"] or "no torch"
    devices = [f"{name} ({full})" for name, full in facts["devices"].items()]
    installed = facts["tapedeck"] and f"tapedeck {facts['tapedeck']}"
    for text in (
        f"{place.name}: {facts['host']}, {bytes_text(facts['free'])} free at home",
        f"Python {facts['python']} ({facts['executable']}), {torch}",
        f"devices: {', '.join(('cpu', *devices))}",
        installed
        or "no tapedeck: scripts are watched and steered all the same; to capture graphs of their steps, pip install "
        "tapedeck-torch there",
    ):
        print(console.printable(text))
    for text in lacks:
        console.warn(text)
    return int(bool(lacks))


def _not_run(place: Place, facts: dict[str, Any], as_json: bool) -> int:
    """Print why the job that looks at a queue's machines has told nothing."""
    state, problem = state_of(facts["job"]), facts.get("problem", "")
    folder = PurePosixPath(facts["folder"]).parent
    cure = (
        f"{problem}. Is {folder} on the file system that the nodes share, and does {place.python} begin a Python "
        f"there? {place.slurm} is what is submitted"
        if problem
        else "It was cancelled: the queue takes jobs of this template, and what is where they run was not looked at"
    )
    if as_json:
        print(json.dumps({"place": place.name, **facts, "lacks": [cure]}))
    else:
        console.warn(f"{place.name}: {state} {cure}")
    return 1


def _lacking(place: Place, facts: dict[str, Any]) -> list[str]:
    """Return a sentence with its cure for each thing without which no script runs."""
    lacks = []
    if not facts["torch"]:
        lacks.append(
            f"{facts['executable']} at {place.name} cannot import torch ({facts['problem']}). Install it there, or "
            f"name another Python: tapedeck places add {place.name} {place.options} --python COMMAND"
        )
    if facts["free"] < LITTLE:
        lacks.append(
            f"{bytes_text(facts['free'])} are free at {place.name}: make room in the home folder there"
        )
    return lacks
