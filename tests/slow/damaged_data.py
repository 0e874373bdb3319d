"""60 damaged or hostile data sets: each is read as `tapedeck data` reads it, in a process of its own with limits.

    python -m tests.slow.damaged_data

Prints what was said of each, and a closing line. A data set passes if it is refused in a sentence, or if its bad
samples are named and the rest are what was written; a traceback, a crash and a hang are failures.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120  # the limit of one data set: torch is imported in it, on a busy machine
MEMORY = 6 * 2**30  # of addresses; libraries reserve more than they use
_READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]),) * 2)
from app.cli import run
sys.exit(run(['data', sys.argv[1], '--json']))
"""


@dataclass(frozen=True)
class Case:
    """One data set: `write` fills a folder and gives the path that is chosen.

    `keeps` is how many samples are to be read, 0 where all is to be refused.
    """

    name: str
    source: str
    write: Callable[[Path], Path]
    keeps: int = 0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a data set was taken: `verdict` is "refused", "read" or "failed", with what was said."""

    case: Case
    verdict: str
    words: str


def outcome(case: Case, folder: Path) -> Outcome:
    """Write a data set into `folder` and have it read in a process of its own."""
    path = case.write(folder)
    project = folder / "p.tape"
    from app.data.config import DataConfig
    from app.project.file import write
    from app.project.project import Project
    from app.util.frozen import FrozenMap

    write(
        Project(
            data=DataConfig(
                case.source, path=str(path), options=FrozenMap(case.options), bad="skip"
            )
        ),
        project,
    )
    command = [sys.executable, "-c", _READ, str(project), str(MEMORY)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, timeout=SECONDS, text=True
        )
    except subprocess.TimeoutExpired:
        return Outcome(case, "failed", f"not back after {SECONDS} s")
    said = done.stderr.strip()
    if "Traceback" in said or done.returncode not in (0, 1, 2):
        return Outcome(case, "failed", f"exit {done.returncode}: {said[-300:]}")
    if done.returncode in (1, 2):
        return Outcome(case, "failed" if case.keeps else "refused", said)
    told = json.loads(done.stdout)
    count = told["train_count"] + told["validation_count"]
    if count != case.keeps:
        return Outcome(
            case, "failed", f"{count} samples were read, {case.keeps} are whole"
        )
    return Outcome(
        case, "read", "; ".join(told["bad"][:1]) or "; ".join(told["notes"][:1])
    )


# --- tables


def _file(name: str, data: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return write


def _table(text: str | bytes) -> Callable[[Path], Path]:
    return _file("t.csv", text if isinstance(text, bytes) else text.encode())


_ROWS = "".join(f"{i / 7:.3f},{i % 5},{('cat', 'dog')[i % 2]}\n" for i in range(40))
_HEAD = "a,b,kind\n"


def _tables() -> Iterator[Case]:
    for name, text, keeps in (
        ("empty", "", 0),
        ("a header alone", _HEAD, 0),
        ("one column", "a\n1\n2\n", 0),
        ("two columns of one name", "a,a\n1,2\n", 0),
        ("rows of other lengths", _HEAD + _ROWS + "1\n1,2,3,4\n", 40),
        (
            "nan, inf and empty fields",
            _HEAD + _ROWS + "nan,1,cat\ninf,1,dog\n,1,cat\n",
            40,
        ),
        ("words among numbers", _HEAD + _ROWS + "x,1,cat\n", 40),
        ("a NUL byte", (_HEAD + _ROWS).encode() + b"1,\0,cat\n", 40),
        ("no UTF-8", (_HEAD + _ROWS).encode() + b"\xff\xfe,1,cat\n", 40),
        (
            "a field of 200,000 characters",
            _HEAD + _ROWS + '"' + "x" * 200_000 + '",1,cat\n',
            0,
        ),
        ("a quote that never ends", _HEAD + _ROWS + '1,2,"cat\n' + _ROWS, 0),
        ("numbers beyond float32", _HEAD + _ROWS + "1e300,1,cat\n", 41),
        ("random bytes", np.random.default_rng(0).bytes(20_000), 0),
        (
            "300,000 different targets",
            "a,b,y\n" + "".join(f"{i},{i},t{i}\n" for i in range(300_000)),
            0,
        ),
        ("cut in the middle of a row", (_HEAD + _ROWS)[:-6], 39),
    ):
        yield Case(f"table: {name}", "file.csv", _table(text), keeps)
    yield Case("table: a folder", "file.csv", lambda folder: folder)
    yield Case("table: a pipe", "file.csv", _pipe("t.csv"))
    yield Case("table: gone", "file.csv", lambda folder: folder / "gone.csv")
    yield Case(
        "table: a name with a NUL", "file.csv", lambda folder: Path(f"{folder}/a\0.csv")
    )
    yield Case(
        "table: no such target", "file.csv", _table(_HEAD + _ROWS), 0, {"target": "c"}
    )


def _pipe(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    return write


# --- arrays

_X = np.random.default_rng(0).random((60, 3), dtype=np.float32)
_Y = np.arange(60) % 3


def _npz(**arrays: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        np.savez(folder / "d.npz", **arrays)
        return folder / "d.npz"

    return write


def _changed(
    change: Callable[[bytes], bytes], name: str = "d.npz"
) -> Callable[[Path], Path]:
    """A whole file of arrays, or of tensors, with its bytes changed."""

    def write(folder: Path) -> Path:
        import torch

        if name.endswith(".pt"):
            torch.save(
                {"x": torch.from_numpy(_X), "y": torch.from_numpy(_Y)}, folder / name
            )
        else:
            np.savez(folder / name, x=_X, y=_Y)
        (folder / name).write_bytes(change((folder / name).read_bytes()))
        return folder / name

    return write


def _flipped(data: bytes) -> bytes:
    """A bit of the first array is flipped."""
    place = data.index(b"NUMPY") + 300
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def _huge_header(folder: Path) -> Path:
    """An array that says that it has 4 TB."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    (folder / "d.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 64
    )
    np.save(folder / "y.npy", _Y)
    return folder / "d.npy"


def _bomb(folder: Path) -> Path:
    """4 GB of zeros in 4 MB."""
    import zipfile

    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (4000000000,), }"
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    with zipfile.ZipFile(folder / "d.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            member.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
            for _ in range(4000):
                member.write(b"\0" * 1_000_000)
    _append(folder / "d.npz", "y.npy", _Y)
    return folder / "d.npz"


def _append(path: Path, name: str, array: Any) -> None:
    import zipfile

    with zipfile.ZipFile(path, "a") as archive, archive.open(name, "w") as member:
        np.lib.format.write_array(member, array)


def _pickled(folder: Path) -> Path:
    import pickle

    (folder / "d.pt").write_bytes(pickle.dumps(os.getcwd, protocol=2))
    return folder / "d.pt"


def _members(folder: Path) -> Path:
    import zipfile

    np.savez(folder / "d.npz", x=_X)
    with zipfile.ZipFile(folder / "d.npz", "a") as archive:
        archive.writestr("y", "no array")
    return folder / "d.npz"


def _arrays() -> Iterator[Case]:
    nan = _X.copy()
    nan[4, 1] = np.nan
    gaps = np.array([3, 7, 10**7] * 20)
    for name, write, keeps in (
        ("complex inputs", _npz(x=_X + 1j, y=_Y), 0),
        ("complex labels", _npz(x=_X, y=_Y + 1j), 0),
        ("records", _npz(x=np.zeros(60, [("a", "f4"), ("b", "i4")]), y=_Y), 0),
        ("texts as inputs", _npz(x=np.array([["a", "b"]] * 60), y=_Y), 0),
        ("texts as labels", _npz(x=_X, y=np.array(["cat", "dog", "bee"] * 20)), 60),
        ("dates", _npz(x=np.zeros(60, "M8[s]"), y=_Y), 0),
        ("objects", _npz(x=np.array([{}] * 60, object), y=_Y), 0),
        ("class ids with gaps", _npz(x=_X, y=gaps), 60),
        (
            "a label of ten million",
            _npz(x=_X, y=np.where(np.arange(60) == 5, 10**7, _Y)),
            60,
        ),
        ("labels of 2^40", _npz(x=_X, y=_Y + 2**40), 60),
        (
            "300,000 different labels",
            _npz(x=np.zeros((300_000, 2), "f4"), y=np.arange(300_000)),
            0,
        ),
        (
            "tokens of 10^9",
            _npz(x=np.ones((60, 5), "i8"), y=np.full((60, 5), 10**9)),
            0,
        ),
        ("classes below 0", _npz(x=_X, y=_Y - 1), 40),
        ("a value that is not finite", _npz(x=nan, y=_Y), 59),
        ("other counts of inputs and labels", _npz(x=_X, y=_Y[:50]), 0),
        ("no dimension", _npz(x=np.float32(1), y=_Y), 0),
        ("no samples", _npz(x=_X[:0], y=_Y[:0]), 0),
        ("integers above int64", _npz(x=_X.astype("u8") + 2**63, y=_Y), 0),
        ("the other byte order", _npz(x=_X.astype(">f4"), y=_Y.astype(">i4")), 60),
        ("cut", _changed(lambda data: data[:700]), 0),
        ("of 0 bytes", _changed(lambda data: b""), 0),
        ("a flipped bit", _changed(_flipped), 0),
        ("another name", _npz(a=_X, b=_Y, c=_Y), 0),
        ("a member that is not an array", _members, 0),
        ("4 GB of zeros in 4 MB", _bomb, 0),
    ):
        yield Case(f"arrays: {name}", "file.tensors", write, keeps)
    yield Case(
        "arrays: 4 TB in the header",
        "file.tensors",
        _huge_header,
        0,
        {"labels_file": "y.npy"},
    )
    for name, change in (
        ("of 0 bytes", lambda data: b""),
        ("cut", lambda data: data[:500]),
    ):
        yield Case(f"tensors: {name}", "file.tensors", _changed(change, "d.pt"))
    yield Case("tensors: a pickle that calls", "file.tensors", _pickled)
    yield Case("tensors: a pipe", "file.tensors", _pipe("d.pt"))


# --- pictures and texts


def _pictures(spoil: Callable[[Path], None], count: int = 10) -> Callable[[Path], Path]:
    """`count` whole pictures of each of two classes, and what `spoil` puts beside those of the first."""

    def write(folder: Path) -> Path:
        from PIL import Image

        for kind in ("cats", "dogs"):
            (folder / "pictures" / kind).mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (9, 8), (number, 0, 9)).save(
                    folder / "pictures" / kind / f"{number}.png"
                )
        spoil(folder / "pictures" / "cats")
        return folder / "pictures"

    return write


def _cut_jpeg(folder: Path) -> None:
    from PIL import Image

    Image.effect_noise((64, 64), 50).save(folder / "z.jpg")
    (folder / "z.jpg").write_bytes((folder / "z.jpg").read_bytes()[:900])


def _png(width: int, height: int, data: bytes = b"\0" * 1000) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body))
            + kind
            + body
            + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


def _picture_cases() -> Iterator[Case]:
    for name, spoil, keeps in (
        ("a cut JPEG", _cut_jpeg, 20),
        ("a PNG of 0 bytes", lambda folder: (folder / "z.png").write_bytes(b""), 20),
        (
            "a text called .png",
            lambda folder: (folder / "z.png").write_text("no picture"),
            20,
        ),
        (
            "a picture of 2.5 billion pixels",
            lambda folder: (folder / "z.png").write_bytes(_png(50_000, 50_000)),
            20,
        ),
        (
            "a picture with too few rows",
            lambda folder: (folder / "z.png").write_bytes(_png(64, 64, b"\0" * 100)),
            20,
        ),
        ("a pipe called .png", lambda folder: os.mkfifo(folder / "z.png"), 20),
        ("a folder called .png", lambda folder: (folder / "z.png").mkdir(), 20),
        (
            "a link to nowhere",
            lambda folder: (folder / "z.png").symlink_to("/gone.png"),
            20,
        ),
    ):
        yield Case(
            f"pictures: {name}",
            "file.pictures",
            _pictures(spoil),
            keeps,
            {"size": (8, 8)},
        )
    yield Case("pictures: none", "file.pictures", _pictures(lambda folder: None, 0))
    yield Case("pictures: no folders", "file.pictures", lambda folder: folder)


def _text_cases() -> Iterator[Case]:
    for name, data, keeps in (
        ("of 0 bytes", b"", 0),
        ("no UTF-8 at all", b"\xff\xfe" * 500, 0),
        (
            "a line of another encoding",
            b"to be, or not to be\n" * 20 + b"caf\xe9\n" + b"to be, or not to be\n",
            41,
        ),
    ):
        yield Case(
            f"text: {name}", "file.text", _file("t.txt", data), keeps, {"context": 10}
        )


def cases() -> tuple[Case, ...]:
    """All data sets, in the same order each time."""
    return (*_tables(), *_arrays(), *_picture_cases(), *_text_cases())


def main() -> int:
    found = []
    for case in cases():
        with tempfile.TemporaryDirectory() as folder:
            one = outcome(case, Path(folder))
        found.append(one)
        print(f"{one.verdict:8} {case.name}: {one.words}", flush=True)
    counts = {
        verdict: sum(one.verdict == verdict for one in found)
        for verdict in ("refused", "read", "failed")
    }
    print(
        f"{len(found)} damaged data sets: {counts['refused']} refused in a sentence, {counts['read']} read with "
        f"the bad samples named, {counts['failed']} failed"
    )
    return int(bool(counts["failed"]))


if __name__ == "__main__":
    sys.exit(main())
