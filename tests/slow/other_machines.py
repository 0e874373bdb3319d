"""The suite, or folders of it, on machines that are unlike this one, each made here.

    python -m tests.slow.other_machines [NAME[+NAME...] ...] [--folders tests/views tests/util ...] [--jobs 2]

Without names all of these are made, one after the other; `german+blanks` is one machine that is both:

{list}

What a machine is said to be is looked at from within it first. Prints a line for each and the tests that failed, writes
the output of each to `out/other_machines`, and ends with 1 where one failed or was not what it is said to be.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out" / "other_machines"
EXAMPLE = ROOT / "resources" / "examples" / "digits.tape"
SIMD = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "ATEN_CPU_CAPABILITY": "default",
    "OPENBLAS_CORETYPE": "Nehalem",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
}
FAMILIES = (
    "from PySide6.QtGui import QFontDatabase, QGuiApplication; QGuiApplication([]);"
    "print({*QFontDatabase.families()} - {'Monospace', 'Sans Serif', 'Serif'})"  # names that stand for any
)


class MachineError(Exception):
    """Raised where a machine cannot be made here; the text says what that takes."""


class Setup(NamedTuple):
    """How a process is started so that it finds itself on the other machine."""

    environment: Mapping[str, str] = {}
    before: tuple[str, ...] = ()
    root: Path = ROOT
    python: str = sys.executable

    def run(
        self, arguments: Sequence[str], log: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Python there, with its output in a file or in the result."""
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", **self.environment}
        command = [*self.before, self.python, *arguments]
        if log is None:
            return subprocess.run(
                command,
                cwd=self.root,
                env=environment,
                capture_output=True,
                text=True,
                encoding="utf-8",
                check=False,
            )
        with log.open("a", encoding="utf-8") as stream:
            return subprocess.run(
                command,
                cwd=self.root,
                env=environment,
                stdout=stream,
                stderr=stream,
                text=True,
                check=False,
            )


class Machine(NamedTuple):
    """`code` prints `expected` where it runs on the machine; `make` is given a folder for what it needs."""

    what: str
    code: str
    expected: str
    make: Callable[[Path], Setup]
    suite: bool = True  # else the main job of the program is done


MACHINES: dict[str, Machine] = {}


def machine(
    name: str, what: str, code: str, expected: str, suite: bool = True
) -> Callable[[Callable[[Path], Setup]], Callable[[Path], Setup]]:
    """Register how a machine is made."""

    def register(make: Callable[[Path], Setup]) -> Callable[[Path], Setup]:
        MACHINES[name] = Machine(what, code, expected, make, suite)
        return make

    return register


@machine("no-fonts", "none of the system's fonts", FAMILIES, "set()")
def no_fonts(folder: Path) -> Setup:
    return Setup(_fontconfig(folder))


@machine(
    "other-fonts",
    "a wide monospaced font is the only one of the system",
    FAMILIES,
    "{'Tapedeck JetBrains Mono'}",
)
def other_fonts(folder: Path) -> Setup:
    environment = _fontconfig(folder)
    shutil.copy(
        ROOT / "resources" / "fonts" / "JetBrainsMono-Regular.ttf", folder / "fonts"
    )
    return Setup(environment)


def _fontconfig(folder: Path) -> dict[str, str]:
    """Write a configuration whose only folder of fonts is empty."""
    (folder / "fonts").mkdir()
    config = folder / "fonts.conf"
    places = f"<dir>{folder / 'fonts'}</dir><cachedir>{folder / 'cache'}</cachedir>"
    config.write_text(
        f'<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>{places}</fontconfig>'
    )
    return {"FONTCONFIG_FILE": str(config)}


@machine(
    "german",
    "the locale de_DE.UTF-8, with its decimal comma",
    "import locale; from PySide6.QtCore import QLocale; locale.setlocale(locale.LC_ALL, '');"
    "print(locale.str(1.5), QLocale().toString(1.5))",
    "1,5 1,5",
)
def german(folder: Path) -> Setup:
    target = folder / "de_DE.UTF-8"
    if shutil.which("localedef") is None:
        raise MachineError("needs localedef and Debian's package locales")
    # (It warns of what other locales lack, with 1.)
    subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "UTF-8", str(target)],
        capture_output=True,
        check=False,
    )
    if not target.is_dir():
        raise MachineError("needs localedef and Debian's package locales")
    return Setup(
        {
            "LOCPATH": str(folder),
            "LC_ALL": "de_DE.UTF-8",
            "LANG": "de_DE.UTF-8",
            "LANGUAGE": "de",
        }
    )


@machine(
    "c-locale",
    "the locale C",
    "import locale; print(locale.setlocale(locale.LC_ALL, ''))",
    "C",
)
def c_locale(folder: Path) -> Setup:
    return Setup({"LC_ALL": "C", "LANG": "C"})


@machine(
    "zone",
    "the time zone of the Chatham Islands, 12:45 or 13:45 ahead",
    "import time; print(time.timezone)",
    "-45900",
)
def zone(folder: Path) -> Setup:
    return Setup({"TZ": "Pacific/Chatham"})


@machine(
    "user",
    "a user who is not root, in a user namespace",
    "import os; print(os.geteuid(), os.getuid())",
    "1000 1000",
)
def user(folder: Path) -> Setup:
    before = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    if os.geteuid() != 0:
        raise MachineError(
            "is this machine as it is: the suite is not run by root here"
        )
    if (
        shutil.which("unshare") is None
        or subprocess.run([*before, "true"], check=False).returncode
    ):
        raise MachineError("needs unshare and user namespaces")
    return Setup(before=before)


@machine(
    "blanks",
    "a folder with blanks in its name",
    "import app, sys; print(*('tape deck' in path for path in (app.__file__, sys.executable)))",
    "True True",
)
def blanks(folder: Path) -> Setup:
    root = folder / "a tape deck"
    subprocess.run(
        ["git", "clone", "--quiet", "--shared", str(ROOT), str(root)], check=True
    )
    venv.create(root / ".venv", with_pip=False, symlinks=True)
    (packages,) = (root / ".venv" / "lib").glob("python*/site-packages")
    for kind, target in (("purelib", packages), ("scripts", root / ".venv" / "bin")):
        for each in Path(sysconfig.get_paths()[kind]).iterdir():
            if (
                not (target / each.name).is_symlink()
                and not (target / each.name).exists()
            ):
                (target / each.name).symlink_to(each)
    (checkout,) = packages.glob("*tapedeck_torch.pth")
    checkout.unlink()
    checkout.write_text(f"{root}\n", encoding="utf-8")
    return Setup(root=root, python=str(root / ".venv" / "bin" / "python"))


@machine(
    "simd",
    "numpy, torch and their libraries without AVX",
    "import torch; from numpy._core._multiarray_umath import __cpu_features__ as found;"
    "print(torch.backends.cpu.get_cpu_capability(), found['AVX2'] and found['X86_V3'])",
    "DEFAULT False",
)
def simd(folder: Path) -> Setup:
    return Setup(SIMD)


@machine("one-core", "one core", "import os; print(len(os.sched_getaffinity(0)))", "1")
def one_core(folder: Path) -> Setup:
    if shutil.which("taskset") is None:
        raise MachineError("needs taskset")
    return Setup(before=("taskset", "--cpu-list", "0"))


@machine(
    "optimized",
    "python -O: the program's main job, without asserts",
    "print(__debug__)",
    "False",
    suite=False,
)
def optimized(folder: Path) -> Setup:
    return Setup({"PYTHONOPTIMIZE": "1"})


@machine(
    "newer-python",
    "the newest Python that is installed here",
    "import sys; print(sys.version_info >= (3, 12))",
    "True",
)
def newer_python(folder: Path) -> Setup:
    """An environment for it is installed once, into `out/other_machines`."""
    names = [f"python3.{minor}" for minor in (14, 13, 12)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [Path(found) for name in names if (found := shutil.which(name))]
    places += [path for name in names for path in sorted(pyenv.glob(f"*/bin/{name}"))]
    works = [
        path
        for path in places
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode
        == 0
    ]
    if not works:
        raise MachineError("needs a Python newer than 3.11")
    environment = OUT / works[0].name
    made = subprocess.run(
        [ROOT / "scripts" / "environment.sh", environment],
        env={**os.environ, "PYTHON": str(works[0])},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise MachineError(
            f"has no environment: {made.stderr.strip().splitlines()[-1]}"
        )
    return Setup(python=str(environment / "bin" / "python"))


def make_all(machines: Sequence[Machine], folder: Path) -> Setup:
    """Return how a process is started that finds itself on all of these at once."""
    whole = Setup()
    for number, each in enumerate(machines):
        own = folder / str(number)
        own.mkdir()
        setup = each.make(own)
        whole = Setup(
            {**whole.environment, **setup.environment},
            (*whole.before, *setup.before),
            setup.root if setup.root != ROOT else whole.root,
            setup.python if setup.python != sys.executable else whole.python,
        )
    return whole


def seen_from_within(each: Machine, setup: Setup) -> str:
    """Return what a process there prints of the machine, or how it failed."""
    done = setup.run(["-c", each.code])
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


def main_job(setup: Setup, folder: Path, log: Path) -> list[str]:
    """Check, train, export and draw a project, and use the whole window; return the commands that failed."""
    out = str(folder / "run")
    commands = [
        ["-m", "app.main", "check", str(EXAMPLE)],
        ["-m", "app.main", "train", str(EXAMPLE), "--out", out],
        ["-m", "app.main", "evaluate", str(EXAMPLE), "--checkpoint", out],
        [
            "-m",
            "app.main",
            "export",
            str(EXAMPLE),
            "--script",
            str(folder / "train.py"),
            "--certify",
        ],
        ["-m", "app.main", "autograd", str(EXAMPLE), "--findings"],
        [
            "-m",
            "app.main",
            "draw",
            "torchvision:squeezenet1_1",
            "--out",
            str(folder / "net.svg"),
        ],
        ["-m", "tests.support.drive_window", str(folder)],
    ]
    return [
        " ".join(command) for command in commands if setup.run(command, log).returncode
    ]


COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def suite(
    setup: Setup, folders: Sequence[str], jobs: int, log: Path
) -> tuple[str, list[str]]:
    """Run tests there; return what pytest counted, and which failed."""
    beside = ["-n", str(jobs), "--dist", "worksteal"] if jobs else ["-n", "0"]
    done = setup.run(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", *beside, *folders], log
    )
    text = log.read_text("utf-8", errors="replace")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    lines = [
        line for line in text.splitlines() if COUNTED.search(line) and " in " in line
    ]
    counts = (
        ", ".join(" ".join(each) for each in COUNTED.findall(lines[-1]))
        if lines
        else "no test was run"
    )
    return counts, failed or (
        [f"pytest ended with {done.returncode}"] if done.returncode or not lines else []
    )


def visit(name: str, folders: Sequence[str], jobs: int) -> tuple[str, bool]:
    """Make a machine and run on it; return its line of the table with what failed, and whether nothing did."""
    machines, log = [MACHINES[each] for each in name.split("+")], OUT / f"{name}.log"
    what = "; ".join(each.what for each in machines)
    log.unlink(missing_ok=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(
        prefix="other_machine_", ignore_cleanup_errors=True
    ) as temporary:
        try:
            setup = make_all(machines, Path(temporary))
        except MachineError as why:
            return f"{name:<13} not made: {why}", True
        for each in machines:
            printed = seen_from_within(each, setup)
            if printed != each.expected:
                return (
                    f"{name:<13} is not {each.what}: {printed!r} in place of {each.expected!r}",
                    False,
                )
        if all(each.suite for each in machines):
            counts, failed = suite(setup, folders, jobs, log)
        else:
            failed = main_job(setup, Path(temporary), log)
            counts = "main job done" if not failed else "main job failed"
    lines = [
        f"{name:<13} {counts:<45} {time.monotonic() - start:>6.0f} s  {what}",
        *(f"    {each}" for each in failed),
    ]
    return "\n".join(lines), not failed


def main(arguments: Sequence[str] | None = None) -> int:
    listed = "\n".join(f"    {name:<13} {each.what}" for name, each in MACHINES.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.slow.other_machines",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(__doc__ or "").replace("{list}", listed),
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="machines, all if none is named"
    )
    parser.add_argument(
        "--folders",
        nargs="+",
        default=["tests"],
        help="what of the suite is run (all of it)",
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes beside one another (2)"
    )
    options = parser.parse_args(arguments)
    if (
        unknown := {each for name in options.names for each in name.split("+")}
        - MACHINES.keys()
    ):
        parser.error(
            f"no machine is called {', '.join(sorted(unknown))}; there are {', '.join(MACHINES)}"
        )
    OUT.mkdir(parents=True, exist_ok=True)
    fine = True
    for name in options.names or MACHINES:
        text, passed = visit(name, options.folders, options.jobs)
        print(text, flush=True)
        fine = fine and passed
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
