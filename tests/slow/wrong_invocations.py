"""A hundred wrong ways to call the command line: is each refused with one sentence, and is nothing left behind?

Every call has a folder of its own with projects, weights, data and pictures that are fine, empty, cut, of another kind,
pipes, folders and links into nothing, and ends with `main`'s exit status. A process that has the program imported is
forked for each; those that are about the process itself (its streams, Ctrl+C) are started anew.

    python -m tests.slow.wrong_invocations [NAME ...] [--only PART-OF-A-NAME] [--every N]
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from app.util import shelf
from tests.slow.material.wrong_invocation_cases import CASES, Case

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 90.0  # seconds, on a machine that does other things too
TRACES = ("Traceback", "Exception ignored", "Fatal Python error")


@dataclass(frozen=True)
class Outcome:
    """How a call ended; `left` are files that came, went or changed."""

    case: Case
    code: int | None
    out: str
    err: str
    left: tuple[str, ...]

    @property
    def problems(self) -> list[str]:
        """What is wrong with it; nothing of one that was refused as it should be."""
        if self.code is None:
            return ["hangs"]
        found = []
        if self.code not in self.case.codes:
            found.append(f"exit status {self.code}")
        if any(word in self.err + self.out for word in TRACES):
            found.append("traceback")
        lines = [line for line in self.err.splitlines() if line.strip()]
        if len(lines) != 1 or not lines[0].startswith("tapedeck: "):
            found.append(f"{len(lines)} lines on stderr instead of a sentence")
        elif len(lines[0]) > 2100 or "weights_only" in lines[0]:
            found.append("a sentence that is no sentence")
        if self.left:
            found.append(f"left behind: {', '.join(self.left[:4])}")
        return found


def kept_files(folder: Path) -> None:
    """Make the files that a call may be given, but for pipes and folders."""
    import torch
    from msgspec.structs import replace

    from app.project import file
    from app.util.resources import path as resource_path

    digits = resource_path("examples", "digits.tape")
    text = digits.read_text("utf-8")
    folder.mkdir(parents=True)
    write = {
        "good.tape": text,
        "empty.tape": "",
        "text.tape": "hello\n",
        "list.tape": "[1, 2]",
        "number.tape": "7",
        "cut.tape": text[: len(text) // 2],
        "deep.tape": "[" * 100_000,
        "future.tape": text.replace('"tapedeck":', '"tapedeck": 9', 1),
        "two\nlines.tape": text,
        "--out.tape": text,
        "\x1b[31mred.tape": "hello\n",
        "notes.txt": "hello\n",
        "text.pt": "hello\n",
        "empty.pt": "",
        "text.safetensors": "hello\n",
        "empty.safetensors": "",
        "syntax.py": "def broken(:\n",
        "empty.py": "",
        "layers.py": "from torch import nn\n\n\nclass Mine(nn.Module):\n    pass\n",
        "nul.py": "a = '\0'\n",
        "raises.py": "raise ValueError('at import')\n",
    }
    for name, held in write.items():
        (folder / name).write_text(held, encoding="utf-8")
    (folder / "bytes.tape").write_bytes(bytes(range(256)) * 8)
    (folder / "bytes.pt").write_bytes(bytes(range(256)) * 8)
    (folder / "bytes.py").write_bytes(bytes(range(128, 256)))
    (folder / "pickle.pt").write_bytes(pickle.dumps({"a": 1}, protocol=4))
    torch.save({"other.weight": torch.ones(3, 3)}, folder / "other.pt")
    torch.save([1, 2], folder / "list.pt")
    torch.save({}, folder / "nothing.pt")
    torch.save(torch.nn.Linear(2, 2), folder / "module.pt")
    data = (folder / "other.pt").read_bytes()
    (folder / "cut.pt").write_bytes(data[: len(data) // 2])
    project = file.read(digits)
    for name, config in _DATA.items():
        data_config = replace(project.data, source="file.tensors", path=str(config))
        file.write(replace(project, data=data_config), folder / f"data-{name}.tape")


_DATA = {
    "absent": "nowhere.pt",
    "text": "text.pt",
    "pipe": "pipe.pt",
    "folder": "folder",
    "empty": "empty.pt",
}


def prepare(kept: Path, folder: Path) -> None:
    """Fill the folder of one call."""
    shutil.copytree(kept, folder)
    for name in (
        "pipe.tape",
        "pipe.pt",
        "pipe.py",
        "pipe.safetensors",
        "pipe.svg",
        "pipe",
    ):
        os.mkfifo(folder / name)
    for name in (
        "folder",
        "folder.tape",
        "folder.pt",
        "folder.py",
        "folder.safetensors",
        "home",
        "tmp",
    ):
        (folder / name).mkdir()
    (folder / "nowhere-link.tape").symlink_to("nowhere")
    (folder / "loop.tape").symlink_to("loop.tape")
    (folder / "taken").write_text("a file where a folder is wanted\n")
    (folder / "sealed").mkdir(mode=0o500)
    (folder / "sealed.tape").write_text("{}")
    (folder / "sealed.tape").chmod(0)


def seen(folder: Path) -> dict[str, str]:
    """What there is in a folder, so that it can be compared."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = os.fsencode(path.relative_to(folder)).decode("utf-8", "backslashreplace")
        is_file = path.is_file() and not path.is_symlink()
        found[name] = (
            f"{path.stat().st_size} {path.stat().st_mtime_ns}"
            if is_file and os.access(path, os.R_OK)
            else ""
        )
    return found


def outcome(case: Case, kept: Path, folder: Path) -> Outcome:
    """Make one call in a folder made for it."""
    prepare(kept, folder)
    before = seen(folder)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = _started(case, folder, out.fileno(), err.fileno())
        code = _ended(pid, case.interrupt)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "backslashreplace"))
    after = seen(folder)
    left = tuple(
        name
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )
    for path in (folder / "sealed", folder / "sealed.tape"):
        path.chmod(0o700)
    shutil.rmtree(folder)
    return Outcome(case, code, *texts, left)


def _environment(case: Case, folder: Path) -> dict[str, str]:
    own = {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "QT_QPA_PLATFORM": "offscreen",
    }
    own["TORCHINDUCTOR_CACHE_DIR"] = str(
        folder.parent / "inductor"
    )  # a folder that torch makes when it is imported
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XDG_", "PYTHON", "LC_"))
    }
    return {
        **plain,
        **own,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        **dict(case.environment),
    }


def _started(case: Case, folder: Path, out: int, err: int) -> int:
    if case.anew:
        line = f'set -o pipefail; "$0" -m app.main "$@" {case.shell}'
        made = subprocess.Popen(
            ["/bin/bash", "-c", line, sys.executable, *case.arguments],
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=_environment(case, folder),
            start_new_session=True,
        )
        return made.pid
    pid = os.fork()
    if pid:
        return pid
    try:
        os._exit(_called(case, folder, out, err))
    finally:
        os._exit(120)


def _called(case: Case, folder: Path, out: int, err: int) -> int:
    """Call `main` as the interpreter would, in a process that is forked for it; returns the exit status."""
    import traceback

    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for number, stream in enumerate((null, out, err)):
        os.dup2(stream, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(_environment(case, folder))
    tempfile.tempdir = None
    sys.argv = ["tapedeck", *case.arguments]
    from app.main import main

    try:
        code = main()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _ended(pid: int, interrupt: float | None) -> int | None:
    """The exit status, None for one that had to be ended."""
    began = time.monotonic()
    while time.monotonic() - began < LONGEST:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if interrupt is not None and time.monotonic() - began > interrupt:
            os.killpg(pid, signal.SIGINT)
            interrupt = None
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def made(cases: Iterable[Case], tell: Callable[[Outcome], None]) -> list[Outcome]:
    """Make the calls, and tell of each."""
    import torch  # noqa: F401

    from app import cli  # noqa: F401
    from app.builder import analysis  # noqa: F401
    from app.cli.autograd import project_graph  # noqa: F401
    from app.project.weights import state_dicts  # noqa: F401

    for name in shelf.modules("task"):
        import_module(name)
    outcomes = []
    with tempfile.TemporaryDirectory() as scratch:
        kept = Path(scratch) / "kept"
        kept_files(kept)
        for number, case in enumerate(cases):
            outcomes.append(outcome(case, kept, Path(scratch) / f"call{number}"))
            tell(outcomes[-1])
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    """The closing line."""
    fine = sum(not one.problems for one in outcomes)
    counts = {
        "tracebacks": sum("traceback" in one.problems for one in outcomes),
        "hangs": sum("hangs" in one.problems for one in outcomes),
        "files left behind": sum(len(one.left) for one in outcomes),
    }
    rest = ", ".join(f"{count} {name}" for name, count in counts.items())
    return (
        f"{len(outcomes)} wrong invocations: {fine} refused with one sentence, {rest}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument(
        "names", nargs="*", help="the calls that are to be made, all by default"
    )
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="every N-th alone"
    )
    parser.add_argument(
        "--show", action="store_true", help="print what each of them is told"
    )
    options = parser.parse_args()
    wanted = {*options.names} or {
        case.name for case in CASES if options.only in case.name
    }
    cases = [case for case in CASES if case.name in wanted][:: options.every]

    def tell(one: Outcome) -> None:
        if one.problems:
            said = f"{one.case.line:.300}\n    {one.err.strip()[-1500:]}"
            print(f"{one.case.name}: {'; '.join(one.problems)}\n    {said}", flush=True)
        elif options.show:
            print(f"{one.case.name}: {one.code} {one.err.strip()}", flush=True)

    outcomes = made(cases, tell)
    print(summary(outcomes))
    return int(any(one.problems for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
