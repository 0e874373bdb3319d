"""Jobs of a queue, as SLURM's own commands submit, show and cancel them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from time import monotonic, sleep

JOB, SCRIPT = "job", "job.sbatch"  # its number and what was submitted, in its folder
OUTPUT, EXIT = "output.txt", "exit"  # what it prints, and the status that it ends with
ENDED = "ended"  # that status where the queue has ended it, who may start it again
RUNS, SPOOL = "runs", "spool"  # a file while it runs; a folder of who commands it
HELD = "held"  # a file, by which it begins paused
SOON, AGAIN, OVER = "soon", "again", "over"  # what it means to be told to end
CHECKPOINTS = "checkpoints"  # a folder
EVERY = (0.5, 15.0)  # seconds between two looks at a queue: after a change, and at most
ANSWERS = 60.0  # seconds in which a command of the queue answers
ASKED_AGAIN = 0.02  # seconds until a command of the queue is looked at again
LATE = 5.0  # seconds in which the files of a job that is over have come from its node
GOES_ON = frozenset(
    "PENDING CONFIGURING RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING "
    "REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD PREEMPTED REVOKED".split()
)
_FIELDS = ("state", "reason", "start", "end", "nodes")
_FORMAT = "%T|%r|%S|%e|%N"
_UNKNOWN = "Invalid job id"  # to the queue, some minutes after the end of the job
_PLACEHOLDER = re.compile(r"@([A-Z]+)@")


def filled(template: str, **values: str) -> str:
    """Return a template with its placeholders filled in, but for those in comments. Raises ValueError.

    >>> filled("# @COMMAND@\\nexec @COMMAND@ # me@X.org", COMMAND="python train.py")
    '# @COMMAND@\\nexec python train.py # me@X.org'
    """
    lines = template.splitlines(keepends=True)
    heeded = [n for n in lines if not n.startswith("#") or n.startswith("#SBATCH")]
    names = set(_PLACEHOLDER.findall("".join(heeded)))
    if unknown := sorted(names - values.keys()):
        known = ", ".join(f"@{name}@" for name in values)
        raise ValueError(f"the template has @{unknown[0]}@; there are {known}")
    if "COMMAND" not in names:
        raise ValueError("the template lacks @COMMAND@, which is what the job runs")
    return "".join(
        _PLACEHOLDER.sub(lambda match: values[match[1]], line)
        if line in heeded
        else line
        for line in lines
    )


def submit(
    template: str, folder: Path, cwd: Path, name: str, command: list[str]
) -> str:
    """Submit a command as a job whose files lie in `folder`; return its number. Raises OSError, ValueError."""
    script = folder / SCRIPT
    text = filled(template, COMMAND=shlex.join(command), FOLDER=str(folder), NAME=name)
    script.write_text(text)
    output = str(folder / OUTPUT).replace("%", "%%")
    said = _said(
        "sbatch",
        "--parsable",
        f"--job-name={name}",
        f"--output={output}",
        "--open-mode=append",
        f"--chdir={cwd}",
        str(script),
    )
    number = said.strip().partition(";")[0]
    (folder / JOB).write_text(number)
    return number


def tested(template: str, folder: Path) -> str:
    """Return what the queue says of a template without submitting it. Raises OSError, ValueError."""
    script = folder / SCRIPT
    script.write_text(filled(template, COMMAND="true", FOLDER=str(folder), NAME="test"))
    return _said("sbatch", "--test-only", str(script))


def cancel(folder: Path) -> None:
    """Cancel the job of a folder. Raises OSError."""
    _said("scancel", (folder / JOB).read_text())


def requeue() -> str:
    """Have the job that this process runs in queued again; return why that cannot be, "" if it is."""
    try:
        _said("scontrol", "requeue", os.environ["SLURM_JOB_ID"])
    except (OSError, KeyError) as error:
        return str(error)
    return ""


def ending() -> str:
    """Return what a SIGTERM to the job that this process runs in means.

    It is to end SOON, as before another takes its place; it is queued AGAIN, by somebody or something; it is OVER.
    """
    try:
        said = _said("scontrol", "show", "job", "-o", os.environ["SLURM_JOB_ID"])
    except (OSError, KeyError):
        return OVER
    fields = dict(re.findall(r"(\w+)=(\S*)", said))
    if fields.get("Restarts", "0") != os.environ.get("SLURM_RESTART_COUNT", "0"):
        return AGAIN
    return SOON if fields.get("JobState") == "RUNNING" else OVER


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint of the latest step in a folder, None where there is none."""
    return max(folder.glob("step-*.pt"), default=None)


def _said(*command: str) -> str:
    """Return what a command of the queue says. Raises OSError, whose text is what it says of a failure."""
    name = command[0]
    if shutil.which(name) is None:
        raise OSError(f"there is no {name} here")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWERS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{name} has not answered for {ANSWERS:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ends with {done.returncode}"]
        raise OSError(f"{name}: {'; '.join(map(_short, lines))}")
    return done.stdout or done.stderr


def _short(line: str) -> str:
    return re.sub(r"^\w+: (error: )?", "", line.strip())


class Job:
    """The job whose files lie in a folder, as it is looked at now and then. Raises OSError if there is none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.number = (folder / JOB).read_text()
        self.state: dict[str, str] = {}
        self._gone = 0.0  # since when it is over, by the queue
        self._due, self._waits = 0.0, EVERY[0]
        self._asked: subprocess.Popen[str] | None = None

    def look(self) -> dict[str, str] | None:
        """Ask the queue now and then, without waiting; return the state of the job where it is another one."""
        now = monotonic()
        if self._asked is None and now >= self._due:
            self._asked = self._ask()
        if self._asked is None or self._asked.poll() is None:
            return None
        said, errors = self._asked.communicate()
        failed, self._asked = self._asked.returncode != 0, None
        state = self.state
        if said.strip():
            last = said.strip().splitlines()[-1].split("|")
            state = dict(zip(_FIELDS, last, strict=False))
        elif not failed or _UNKNOWN in errors:
            state = {"state": "gone"}
        goes_on = not state or state["state"] in GOES_ON
        self._gone = 0.0 if goes_on else self._gone or now
        changed = state != self.state
        soon = changed or (self._folder / ENDED).exists()
        self._waits = EVERY[0] if soon else min(2 * self._waits, EVERY[1])
        self._due, self.state = now + self._waits, state
        return {"job": self.number, **state} if changed else None

    def look_now(self) -> dict[str, str] | None:
        """Ask the queue at once, and wait for its answer; return the state of the job where it is another one."""
        self._due, until = 0.0, monotonic() + ANSWERS
        state = self.look()
        while self._asked is not None and monotonic() < until:
            sleep(ASKED_AGAIN)
            state = self.look()
        return state

    def _ask(self) -> subprocess.Popen[str] | None:
        command = ("squeue", "--noheader", "--states=all", f"--format={_FORMAT}")
        try:
            return subprocess.Popen(
                (*command, f"--jobs={self.number}"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError:
            self._due = monotonic() + EVERY[1]
            return None

    @property
    def runs(self) -> bool:
        """Whether it listens, as far as can be known."""
        running = self.state.get("state", "RUNNING") == "RUNNING"
        return running and self.has_begun

    @property
    def has_begun(self) -> bool:
        """Whether it listened, and has not said that it is over, as one whose node is lost."""
        return (self._folder / RUNS).exists()

    def hold(self) -> None:
        """Have its script begin paused. Raises OSError."""
        (self._folder / HELD).touch()

    @property
    def over(self) -> bool:
        """Whether it has ended for good, and its files have come."""
        if (self._folder / EXIT).exists():
            return True
        has_come = (self._folder / ENDED).exists()
        return bool(self._gone) and (has_come or monotonic() - self._gone > LATE)
