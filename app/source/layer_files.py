"""User files with custom layers, as values, and the permission to run them.

A file runs only if its text was allowed: `allow` is called for trusted hashes, and `layer_modules.load`, which imports
the text, checks `allowed` each time.
"""

from __future__ import annotations

import ast
import hashlib
import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from app.util.errors import CodedError
from app.util.frozen import Shared, equal_in

FOLDER = "imported_layers"  # of files that an import wrote, each in a folder named by its hash


class LayerFileError(CodedError, ValueError):
    """An unusable layer file; the text names it and the reason."""


class UntrustedError(LayerFileError):
    """A file that is not trusted."""


class LayerFile(Shared, frozen=True):
    """A file's text and the name that it is imported by. `path` is where it was read, "" if nowhere."""

    module: str
    text: str
    sha256: str
    path: str = ""

    def __post_init__(self) -> None:
        if self.sha256 != digest(self.text):
            raise ValueError(
                f"{self.sha256} is not the hash of the text of {self.name}"
            )

    def __eq__(self, other: object) -> bool:
        """Compare what is imported; the same file may have been read from elsewhere."""
        return equal_in(("module", "sha256"), self, other)

    def __hash__(self) -> int:
        return hash((self.module, self.sha256))

    @classmethod
    def from_text(cls, module: str, text: str, path: str = "") -> LayerFile:
        return cls(module, text, digest(text), path)

    @property
    def name(self) -> str:
        """The file's name next to an exported model."""
        return f"{self.module}.py"

    @property
    def filename(self) -> str:
        """The name under which tracebacks show the text."""
        return f"<{self.name} {self.sha256[:12]}>"


_OWN = re.compile(
    r"<(.+\.py) [0-9a-f]{12}>"
)  # the name under which tracebacks show a file's text
_FRAME = re.compile(r'  File "([^"]+)", line \d+')


def names_in(text: str) -> tuple[str, ...]:
    """Return the classes of a file, and its functions without required arguments, from its source; nothing runs. Raises
    LayerFileError."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise LayerFileError(f"the file is not valid Python: {error}") from error
    names = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.FunctionDef) and len(node.args.args) == len(
            node.args.defaults
        ):
            names.append(f"{node.name}()")
    return tuple(names)


def digest(text: str) -> str:
    """Return the hash by which a text is trusted.

    >>> digest("x = 1")[:8]
    '8ff436de'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def decoded(data: bytes) -> str | None:
    """Return the text of a file as it is shown and run: UTF-8, whatever encoding it declares; None for other bytes."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")


_allowed: set[str] = set()
_tried: set[str] = set()


def allow(sha256: str, tried: bool = False) -> None:
    """Allow the text of this hash to run from now on. `tried` means that it ran to completion here before."""
    _allowed.add(sha256)
    if tried:
        _tried.add(sha256)


def note_tried(sha256: str) -> None:
    """Note that the text of this hash ran to completion in a trial process, so that it is not tried again."""
    _tried.add(sha256)


def disallow(sha256: str) -> None:
    """Revoke the permission. Existing nets keep their classes."""
    _allowed.discard(sha256)


def allowed(sha256: str) -> bool:
    return sha256 in _allowed


def tried(sha256: str) -> bool:
    """Return whether the text of this hash has run to completion before."""
    return sha256 in _tried


def trusted() -> tuple[frozenset[str], frozenset[str]]:
    """Return the hashes that may run, and those of texts that ran to completion."""
    return frozenset(_allowed), frozenset(_tried)


def trust_only(allowed: Iterable[str], tried: Iterable[str]) -> None:
    """Let these run and no others, as another process does."""
    permitted = set(allowed)
    _allowed.update(
        permitted
    )  # what stays allowed is so at every moment: others load meanwhile
    _allowed.intersection_update(permitted)
    _tried.update(tried)


def error_text(error: BaseException, file: LayerFile) -> str:
    """Return the last line of an error's traceback, with the line of the file."""
    message = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    frames = traceback.walk_tb(error.__traceback__)
    line_numbers = [
        line for frame, line in frames if frame.f_code.co_filename == file.filename
    ]
    line = (
        error.lineno
        if isinstance(error, SyntaxError)
        else line_numbers[-1]
        if line_numbers
        else None
    )
    return f"{message} (line {line})" if line else message


def error_location(trace: TracebackType | None) -> str:
    """Return where in the user's files an error came from, such as "line 24 of layers.py", "" if in none."""
    location = ""
    for frame, line in traceback.walk_tb(trace):
        if match := _OWN.fullmatch(frame.f_code.co_filename):
            location = f"line {line} of {match[1]}"
    return location


def is_layer_file(filename: str) -> bool:
    """Return whether a frame of this file name runs the text of a layer file."""
    return _OWN.fullmatch(filename) is not None


def display_name(filename: str) -> str:
    """Return the file name of a frame's code.

    >>> display_name("<layers.py 0123456789ab>"), display_name("/home/ada/net.py")
    ('layers.py', 'net.py')
    """
    match = _OWN.fullmatch(filename)
    return match[1] if match else Path(filename).name


def own_frames(text: str) -> str:
    """Keep of a traceback the frames of the user's files and of the net; "" without any of the user's."""
    remaining, included, any_user_frame = [], True, False
    for line in text.splitlines():
        if line.startswith('  File "'):
            file = _FRAME.match(line)
            mine = _OWN.fullmatch(file[1]) if file else None
            any_user_frame, included = (
                any_user_frame or mine is not None,
                file is not None and file[1].startswith("<"),
            )
            line = line.replace(file[1], mine[1]) if file and mine else line
        elif not line.startswith("  "):
            included = True
        if included:
            remaining.append(line)
    return "\n".join(remaining) if any_user_frame else ""
