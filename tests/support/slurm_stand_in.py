"""A queue of one node that stands in for SLURM: sbatch, squeue, scancel and scontrol, as their manual pages say.

The command is the name that this file is called by; its state lies in the folder of STAND_IN_QUEUE. Each job has a
process of its own, `_node`, which starts it as soon as the queue is up, brings it signals, and says how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HOME = Path(os.environ["STAND_IN_QUEUE"])
EVERY, KILL_WAIT = 0.02, 2.0  # seconds
PARTITION = "short"
FORMATS = {
    "%i": "id",
    "%T": "state",
    "%r": "reason",
    "%S": "start",
    "%e": "end",
    "%N": "nodes",
}


def fail(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr)
    sys.exit(1)


def options_of(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return `--name=value` and `--name` by name, and the other arguments."""
    options = [
        a.removeprefix("--").partition("=") for a in arguments if a.startswith("--")
    ]
    return {n: value for n, _, value in options}, [
        a for a in arguments if not a.startswith("--")
    ]


def job_file(number: str) -> Path:
    return HOME / f"job-{number}.json"


def read(number: str) -> dict[str, Any]:
    try:
        return dict(json.loads(job_file(number).read_text()))
    except FileNotFoundError:
        fail("slurm_load_jobs error: Invalid job id specified")
        raise


def write(job: dict[str, Any], **fields: Any) -> None:
    job.update(fields)
    part = job_file(job["id"]).with_suffix(".part")
    part.write_text(json.dumps(job))
    part.replace(job_file(job["id"]))


def is_up() -> bool:
    return not (HOME / "down").exists()


def tell(number: str, what: str) -> None:
    """Tell the process of a job something, after all that it was told before."""
    read(number)
    (HOME / f"told-{number}-{time.monotonic_ns()}-{what}").touch()


def told(number: str) -> list[str]:
    files = sorted(HOME.glob(f"told-{number}-*"))
    for file in files:
        file.unlink()
    return [file.name.split("-", 3)[3] for file in files]


def sbatch(arguments: list[str]) -> None:
    given, (script, *_) = options_of(arguments)
    text = Path(script).read_text()
    directives: list[str] = []
    for line in text.splitlines()[1:]:
        if line.strip() and not line.startswith("#"):
            break
        directives += (
            line.removeprefix("#SBATCH").split() if line.startswith("#SBATCH") else []
        )
    options = {**options_of(directives)[0], **given}
    if options.get("partition", PARTITION) != PARTITION:
        partition = options["partition"]
        fail(
            f"sbatch: error: invalid partition specified: {partition}",
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
        )
    if "test-only" in options:
        print(
            "sbatch: Job 1 to start at 2026-11-30T01:01:15 using 1 processors on nodes n1",
            file=sys.stderr,
        )
        return
    number = str(len(list(HOME.glob("job-*.json"))) + 1)
    copied = HOME / f"script-{number}"
    copied.write_text(text)
    copied.chmod(0o700)
    job = {"id": number, "script": str(copied), "restarts": 0, "options": options}
    write(job, state="PENDING", reason="None", start="N/A", end="N/A", nodes="")
    subprocess.Popen(
        [sys.executable, __file__, "_node", number],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    print(number if "parsable" in options else f"Submitted batch job {number}")


def _node(number: str) -> None:
    """Run a job, again where it is queued again."""
    job = read(number)
    while waited(job) and ran(job):
        write(job, state="PENDING", reason="BeginTime", nodes="")


def waited(job: dict[str, Any]) -> bool:
    """Wait until a job starts; False once it is cancelled."""
    while job["reason"] == "BeginTime" or not is_up():
        if not is_up() and job["reason"] != "PartitionDown":
            write(job, reason="PartitionDown")
        for what in told(job["id"]):
            if what == "cancel":
                write(job, state="CANCELLED")
                return False
            if what == "now":
                write(job, reason="None")
        time.sleep(EVERY)
    return True


def ran(job: dict[str, Any]) -> bool:
    """Run a job once; return whether it is to be queued again."""
    options, number = job["options"], job["id"]
    environment = {
        **os.environ,
        "SLURM_JOB_ID": number,
        "SLURM_RESTART_COUNT": str(job["restarts"]),
    }
    with open(
        options["output"], "ab" if options.get("open-mode") == "append" else "wb"
    ) as output:
        process = subprocess.Popen(
            [job["script"]],
            cwd=options.get("chdir"),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    write(job, state="RUNNING", reason="None", end="2026-11-30T05:00:00", nodes="n1")
    again = False
    while process.poll() is None:
        for what in told(number):
            if what == "lost":  # which the count of starts tells of once all is over
                again = True
                write(job, state="COMPLETING")
                end(process)
                write(job, restarts=job["restarts"] + 1)
            elif what in ("cancel", "requeue"):
                again = what == "requeue"
                write(job, state="COMPLETING", restarts=job["restarts"] + again)
                end(process)
            elif what != "now":
                kind, name = what.split("+")
                kill = os.kill if kind == "batch" else os.killpg
                kill(process.pid, getattr(signal, f"SIG{name}"))
        time.sleep(EVERY)
    if job["state"] == "COMPLETING" and not again:
        write(job, state="CANCELLED")
    elif not again:
        write(job, state="FAILED" if process.returncode else "COMPLETED")
    return again


def end(process: subprocess.Popen[bytes]) -> None:
    """End all processes of a job, by SIGTERM and SIGCONT, and by SIGKILL if that is not heeded."""
    os.killpg(process.pid, signal.SIGCONT)
    os.killpg(process.pid, signal.SIGTERM)
    until = time.monotonic() + KILL_WAIT
    while process.poll() is None and time.monotonic() < until:
        time.sleep(EVERY)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def squeue(arguments: list[str]) -> None:
    options, _ = options_of(arguments)
    job = read(options["jobs"])
    if options.get("states") == "all" or job["state"] in ("PENDING", "RUNNING"):
        line = options["format"]
        for sign, name in FORMATS.items():
            line = line.replace(sign, job[name])
        print(line)


def scancel(arguments: list[str]) -> None:
    options, (number,) = options_of(arguments)
    kind = "batch" if "batch" in options else "all"
    tell(number, f"{kind}+{options['signal']}" if "signal" in options else "cancel")


def scontrol(arguments: list[str]) -> None:
    match arguments:
        case ["show", "job", "-o", number]:
            job = read(number)
            state, restarts = job["state"], job["restarts"]
            print(f"JobId={number} JobState={state} Restarts={restarts}")
        case ["requeue", number]:
            tell(number, "requeue")
        case ["update", job, "StartTime=now+2"] if job.startswith("JobId="):
            number = job.removeprefix("JobId=")
            if read(number)["state"] != "PENDING":
                fail(f"Job is no longer pending execution for job {number}")
            tell(number, "now")
        case ["update", node, "State=DOWN", _] if node.startswith("NodeName="):
            for file in HOME.glob("job-*.json"):
                job = json.loads(file.read_text())
                if job["state"] == "RUNNING":
                    tell(job["id"], "lost")
        case ["update", _, "State=DOWN"]:
            (HOME / "down").touch()
        case ["update", _, "State=UP"]:
            (HOME / "down").unlink(missing_ok=True)
        case _:
            fail(f"scontrol: error: invalid request: {' '.join(arguments)}")


if __name__ == "__main__":
    called, rest = Path(sys.argv[0]).name, sys.argv[1:]
    if rest[:1] == ["_node"]:
        _node(rest[1])
    else:
        {"sbatch": sbatch, "squeue": squeue, "scancel": scancel, "scontrol": scontrol}[
            called
        ](rest)
