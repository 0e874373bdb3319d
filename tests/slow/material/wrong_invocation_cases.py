"""The calls of `tests.slow.wrong_invocations`: a name, the arguments, and how it may end."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

REFUSED = (1, 2)


@dataclass(frozen=True)
class Case:
    """A call in a folder that `wrong_invocations.prepare` fills.

    `anew` starts a process for it, in a shell that also does what `shell` says; `interrupt` is when it is sent SIGINT.
    """

    name: str
    arguments: tuple[str, ...]
    codes: tuple[int, ...] = REFUSED
    anew: bool = False
    shell: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    interrupt: float | None = None

    @property
    def line(self) -> str:
        """As a person would type it."""
        return f"tapedeck {shlex.join(self.arguments)} {self.shell}".strip()


def _calls(text: str) -> list[Case]:
    """A case a line: its name, a colon, and the arguments as in a shell."""
    rows = (
        line.strip().partition(": ")
        for line in text.strip().splitlines()
        if line.strip()
    )
    return [Case(name, tuple(shlex.split(arguments))) for name, _, arguments in rows]


_WORDS = _calls("""
    no command of ours: trian good.tape
    an option as a command: --frobnicate
    two projects: good.tape good.tape
    an option without a command: --json check good.tape
    check without a project: check
    check of two: check good.tape good.tape
    check with an option of another: check good.tape --out x
    check with an unknown option: check good.tape --josn
    train without --out: train good.tape
    train without a project: train --out out
    train in the wrong order: train --out good.tape out
    train of no epochs: train good.tape --out out --epochs 0
    train of a negative number: train good.tape --out out --epochs -3
    train of half an epoch: train good.tape --out out --epochs 1.5
    train of a word: train good.tape --out out --epochs many
    train of too many: train good.tape --out out --epochs 1e9
    train with a negative seed: train good.tape --out out --seed -1
    train with a huge seed: train good.tape --out out --seed 99999999999999999999999
    train on no device: train good.tape --out out --device gpu
    train on a device that is not here: train good.tape --out out --device cuda:99
    train on a negative device: train good.tape --out out --device cuda:-1
    train on a device of no name: train good.tape --out out --device ''
    train on no processes: train good.tape --out out --processes 0
    train with --save-every 0: train good.tape --out out --save-every 0
    train with an option without its value: train good.tape --out
    train into an empty name: train good.tape --out ''
    train into a file: train good.tape --out taken
    train below a file: train good.tape --out taken/below
    train into a pipe: train good.tape --out pipe
    evaluate with both: evaluate good.tape --weights other.pt --checkpoint folder
    evaluate of no part: evaluate good.tape --part everything
    evaluate with no such augmentation: evaluate good.tape --augment rotate
    evaluate on no device: evaluate good.tape --device tpu
    evaluate on a device that is not here: evaluate good.tape --device cuda:99
    evaluate into a folder that is not there: evaluate good.tape --csv nowhere/x.csv
    evaluate into a folder: evaluate good.tape --csv folder
    try on no device: try good.tape --device quantum
    try on a device that is not here: try good.tape --device cuda:99
    try of no batches: try good.tape --find-rate --batches 0
    try of a negative number: try good.tape --find-rate --batches -5
    export of nothing: export good.tape
    export of one file twice: export good.tape --code a.py --script a.py
    export over the project: export good.tape --code good.tape
    export of code as text: export good.tape --code a.txt
    export of weights as code: export good.tape --weights a.py
    export into a folder: export good.tape --code folder.py
    export into a folder that is not there: export good.tape --code nowhere/a.py
    export below a file: export good.tape --code taken/a.py
    export of a script in another folder: export good.tape --code a.py --script folder/b.py
    export of code that cannot be imported: export good.tape --code class.py --script b.py
    export of a picture without an ending: export good.tape --drawing picture
    export over a pipe: export good.tape --drawing pipe.svg
    autograd of nothing: autograd good.tape
    autograd into a text: autograd good.tape --out a.txt
    autograd played into a picture: autograd good.tape --play --out a.png
    autograd of no batch: autograd good.tape --batch 0 --findings
    autograd of no such vector: autograd good.tape --vector twos --findings
    autograd of output 0: autograd good.tape --outputs 0 --findings
    autograd of output 99: autograd good.tape --outputs 99 --findings
    autograd of a layer that is not there: autograd good.tape --gradcheck nowhere
    autograd with no such autocast: autograd good.tape --amp int8 --findings
    autograd of a file that is not trusted: autograd layers.py --out a.svg
    autograd of a file with what is of a project: autograd layers.py --random --out a.svg --trust
    autograd for no seconds: autograd layers.py --timeout 0 --out a.svg --trust
    import of nothing: import
    import without --out: import torchvision:resnet18
    import of no model: import torchvision:resnet9000 -o a.tape
    import into no project: import torchvision:resnet18 -o a.txt
    import into a folder: import torchvision:resnet18 -o folder.tape
    import of what is not trusted: import layers.py:Mine --input 1x3 -o a.tape
    import of no class: import layers.py:Other --input 1x3 --trust -o a.tape
    import of wrong Python: import syntax.py:Mine --input 1x3 --trust -o a.tape
    import of wrong arguments: import torchvision:resnet18 --args {broken -o a.tape
    import of a wrong shape: import torchvision:resnet18 --input 1xthree -o a.tape
    import of weights into nothing: import other.pt --strict
    import of weights as a project: import other.pt -o a.tape
    import with two ways: import other.pt --into good.tape --strict --partial
    import of a file that is not there: import nowhere.pt
    import for no seconds: import layers.py:Mine --input 1x3 --trust --timeout 0 -o a.tape
    import for a time that is no number: import layers.py:Mine --input 1x3 --trust --timeout nan -o a.tape
    autograd for a time that is no number: autograd layers.py --timeout nan --out a.svg --trust
    check of what looks like an option: check --out.tape
    evaluate into a pipe: evaluate good.tape --csv pipe
    runs of a pipe: runs pipe.tape
    runs into a file: runs good.tape --tensorboard taken
    runs of nothing: runs
    runs of a project that is not there: runs nowhere.tape
    runs of one that is not kept: runs good.tape --run 7 --gains
    runs as events of none: runs good.tape --tensorboard events
    doctor with an argument: doctor good.tape
""")

# Each command that reads a project, with each file that is none.
_READERS = (
    "check {}",
    "train {} --out out",
    "data {}",
    "try {}",
    "evaluate {}",
    "export {} --code a.py",
    "autograd {} --findings",
    "import other.pt --into {}",
)
_NO_PROJECTS = (
    "nowhere.tape",
    "empty.tape",
    "text.tape",
    "list.tape",
    "cut.tape",
    "deep.tape",
    "number.tape",
    "future.tape",
    "bytes.tape",
    "folder.tape",
    "pipe.tape",
    "nowhere-link.tape",
    "loop.tape",
    "taken/x.tape",
    "'two\nlines-gone.tape'",
    "'\x1b[31mred.tape'",
    "''",
    "/dev/null",
    "data-pipe.tape",
    "data-absent.tape",
)


def _projects() -> list[Case]:
    found = []
    for number, name in enumerate(_NO_PROJECTS):
        template = _READERS[number % len(_READERS)]
        template = "data {}" if name.startswith("data-") else template
        arguments = tuple(shlex.split(template.format(name)))
        found.append(
            Case(
                f"{arguments[0]} of {name.encode('unicode_escape').decode()}", arguments
            )
        )
    return found


_NO_WEIGHTS = (
    "nowhere.pt",
    "empty.pt",
    "text.pt",
    "bytes.pt",
    "cut.pt",
    "pickle.pt",
    "module.pt",
    "list.pt",
    "nothing.pt",
    "folder.pt",
    "pipe.pt",
    "text.safetensors",
    "empty.safetensors",
    "folder.safetensors",
    "pipe.safetensors",
    "notes.txt",
    "other.pt",
    "/dev/null",
    "/dev/zero",
)
_WEIGHTS = (
    "evaluate good.tape --weights {}",
    "import {}",
    "train good.tape --out out --resume {}",
    "evaluate good.tape --checkpoint {}",
)


def _weights() -> list[Case]:
    found = []
    for number, name in enumerate(_NO_WEIGHTS):
        for template in (_WEIGHTS[number % 4], _WEIGHTS[(number + 2) % 4]):
            if template == "import {}" and (
                name == "other.pt" or not name.endswith((".pt", ".safetensors"))
            ):
                continue
            arguments = tuple(shlex.split(template.format(name)))
            found.append(
                Case(
                    f"{arguments[0]} with {name} as weights, {arguments[-2]}", arguments
                )
            )
    return found


_FILES = _calls("""
    train from a folder without checkpoints: train good.tape --out out --resume folder
    train from nowhere: train good.tape --out out --resume nowhere
    train from a pipe in an --out that is there: train good.tape --out folder --resume pipe
    autograd of a pipe without trust: autograd pipe.py --out a.svg
    autograd into a pipe: autograd good.tape --out pipe.svg
    autograd into a folder that is not there: autograd good.tape --out nowhere/a.svg
    autograd of a pipe: autograd pipe.py --out a.svg --trust
    autograd of a folder: autograd folder.py --out a.svg --trust
    autograd of bytes: autograd bytes.py --out a.svg --trust
    autograd of no file: autograd nowhere.py --out a.svg --trust
    autograd of wrong Python: autograd syntax.py --out a.svg --trust
    autograd of an empty file: autograd empty.py --out a.svg --trust
    import of a pipe: import pipe.py:Mine --input 1x3 --trust -o a.tape
    import of a folder: import folder.py:Mine --input 1x3 --trust -o a.tape
    import of bytes: import bytes.py:Mine --input 1x3 --trust -o a.tape
    import of a NUL: import nul.py:Mine --input 1x3 --trust -o a.tape
    import of a file that raises: import raises.py:Mine --input 1x3 --trust -o a.tape
    import of no file: import nowhere.py:Mine --input 1x3 --trust -o a.tape
    data of a text: data data-text.tape
    data of a pipe: data data-pipe.tape
    data of a folder: data data-folder.tape
    data of nothing: data data-empty.tape
    data of no file: data data-absent.tape
    evaluate with runs of nothing: evaluate good.tape --checkpoint folder
""")

_BYTES = "caf\udce9.tape"  # what Python makes of a name that is not UTF-8
_PROCESS = [
    Case("a name that is not UTF-8", ("check", _BYTES)),
    Case(
        "train into a name that is not UTF-8 of a project that is not there",
        ("train", _BYTES, "--out", "out\udcff"),
    ),
    Case("a name with a NUL", ("check", "a\0b.tape")),
    Case("weights with a NUL", ("evaluate", "good.tape", "--weights", "a\0b.pt")),
    Case(
        "a checkpoint with a NUL",
        ("train", "good.tape", "--out", "out", "--resume", "a\0b.pt"),
    ),
    Case("an --out with a NUL", ("train", "good.tape", "--out", "a\0b")),
    Case("code with a NUL", ("export", "good.tape", "--code", "a\0b.py")),
    Case("a name that is too long", ("check", f"{'x' * 5000}.tape")),
    Case("an --out that is too long", ("train", "good.tape", "--out", "x" * 5000)),
    Case(
        "check into a full disk",
        ("check", "good.tape"),
        (2,),
        anew=True,
        shell="> /dev/full",
    ),
    Case("doctor into a full disk", ("doctor",), (2,), anew=True, shell="> /dev/full"),
    Case("--help into a full disk", ("--help",), (2,), anew=True, shell="> /dev/full"),
    Case(
        "check into a pipe that nobody reads",
        ("check", "good.tape"),
        (141,),
        anew=True,
        shell="| true",
    ),
    Case(
        "--help into a pipe that nobody reads",
        ("train", "--help"),
        (141,),
        anew=True,
        shell="| true",
    ),
    Case("Ctrl+C at once", ("check", "good.tape"), (130,), anew=True, interrupt=0.3),
    Case(
        "Ctrl+C while it imports",
        ("check", "good.tape"),
        (130,),
        anew=True,
        interrupt=0.8,
    ),
    Case(
        "Ctrl+C in training, before the first batch",
        ("train", "good.tape", "--out", "out"),
        (130,),
        anew=True,
        interrupt=1.2,
    ),
]

CASES = [*_WORDS, *_projects(), *_weights(), *_FILES, *_PROCESS]
