"""`tapedeck places`: list, add, check and remove places."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from typing import Any

import msgspec

from app.cli import console
from app.features.places import values
from app.features.places.line import Line
from app.features.places.values import Place
from app.util.formatting import bytes_text

LITTLE = 1 << 30  # bytes free


def run(options: argparse.Namespace) -> int:
    """Carry out the action; return 1 if a place that was checked lacks something."""
    if (options.name is None) != (options.action == "list"):
        takes = "takes no name" if options.action == "list" else "takes the NAME of one"
        raise console.CommandError(f"places {options.action} {takes}")
    if (options.ssh or options.python) and options.action != "add":
        raise console.CommandError("--ssh and --python are of places add")
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
    if options.ssh is None:
        raise console.CommandError(
            "places add NAME --ssh ALIAS: name a Host of ~/.ssh/config, or user@host"
        )
    place = Place(options.name, options.ssh, options.python or "python3")
    _save({**values.places(), place.name: values.checked(place)})
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
            print(console.printable(f"{place.name}  {place.ssh}  {place.python}"))


def _check(place: Place, as_json: bool) -> int:
    """Print what a place has, and for what it lacks the cure."""
    with closing(Line(place)) as line:
        facts = line.ask("check")
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


def _lacking(place: Place, facts: dict[str, Any]) -> list[str]:
    """Return a sentence with its cure for each thing without which no script runs."""
    lacks = []
    if not facts["torch"]:
        lacks.append(
            f"{facts['executable']} at {place.name} cannot import torch ({facts['problem']}). Install it there, or "
            f"name another Python: tapedeck places add {place.name} --ssh {place.ssh} --python COMMAND"
        )
    if facts["free"] < LITTLE:
        lacks.append(
            f"{bytes_text(facts['free'])} are free at {place.name}: make room in the home folder there"
        )
    return lacks
