"""`tapedeck doctor`: installed and missing requirements, with the command that installs them. Knows no Qt.

Everything is tested: versions are read from the installed packages, torch and torchvision are imported, the shared
libraries that Qt needs are looked up by the loader, and the data folder is written to.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

from app import __version__
from app.cli.display import display, obstacle, qt_folder
from app.cli.system_packages import install_line, missing_libraries

State = Literal["ok", "note", "missing"]

PYTHON = (3, 11)
TORCH = (2, 10)
PYSIDE, PYSIDE_END, PYSIDE_BAD = (6, 8), (6, 12), ((6, 10, 1),)
PYQTGRAPH = (0, 14)
OTHERS = tuple(
    "numpy scikit-learn torchmetrics charset-normalizer safetensors msgspec graphviz pygments rapidfuzz jinja2".split()
)

# By which packages of other names are imported.
MODULES = {
    "scikit-learn": "sklearn",
    "charset-normalizer": "charset_normalizer",
    "PySide6-Essentials": "PySide6",
}

_PIP = f"{Path(sys.executable).name} -m pip install"


class DoctorCheck(NamedTuple):
    """The result of one check. "missing" is needed and not there; "note" is something that can be done without.

    Made without the packages that are looked at.
    """

    name: str
    state: State
    found: str
    cure: str = ""


def report() -> tuple[DoctorCheck, ...]:
    """Run every check, in the order in which problems should be fixed. Imports torch: it takes a second or two."""
    return (
        _python(),
        torch_check(),
        _devices(),
        _torchvision(),
        _pyside(),
        *qt_libraries(),
        _window(),
        _versioned("pyqtgraph", PYQTGRAPH),
        *map(_imported, OTHERS),
        _dot(),
        _fonts(),
        _data_folder(),
    )


def installed(window: bool) -> Iterator[DoctorCheck]:
    """Check the packages that a command needs, and those of the window; none is imported."""
    yield _versioned("torch", TORCH)
    yield _versioned("torchvision")
    yield from map(_versioned, OTHERS)
    if window:
        yield _pyside()
        yield _versioned("pyqtgraph", PYQTGRAPH)


def unimportable(module: str, error: BaseException) -> DoctorCheck | None:
    """Return the check of the package of a module that raised an error when it was imported; None if it is none of
    those that are needed."""
    by_module = {
        MODULES.get(name, name): name
        for name in ("torch", "torchvision", "PySide6-Essentials", *OTHERS)
    }
    package = {**by_module, "pyqtgraph": "pyqtgraph"}.get(module)
    if package is None:
        return None
    check = _versioned(package)
    if check.state == "missing":
        return check
    if module == "PySide6" and (
        lacking := [library for library in qt_libraries() if library.state == "missing"]
    ):
        return lacking[0]
    finding = f"{check.found} does not import: {_first_line(error)}"
    return DoctorCheck(
        package, "missing", finding, f"{_PIP} --force-reinstall {package}"
    )


def print_report(stream: TextIO | None = None) -> int:
    """Print every check and return the exit status: 0 if all that is needed is there, 1 otherwise."""
    stream = stream or sys.stdout
    checks = report()
    width = max(len(check.name) for check in checks)
    print(f"Tapedeck {__version__}, {platform.platform()}\n", file=stream)
    for check in checks:
        print(f"  {check.state:<8} {check.name:<{width}}  {check.found}", file=stream)
        if check.cure:
            print(f"  {'':<8} {'':<{width}}  -> {check.cure}", file=stream)
    missing = [check.name for check in checks if check.state == "missing"]
    verdict = (
        f"Missing: {', '.join(missing)}."
        if missing
        else "All requirements are installed."
    )
    print(f"\n{verdict}", file=stream)
    return 1 if missing else 0


def numbers(version: str) -> tuple[int, ...]:
    """Parse the leading numbers of a version.

    >>> numbers("2.13.0+cpu"), numbers("6.12.0a1")
    ((2, 13, 0), (6, 12, 0))
    """
    result = []
    for component in version.split("+")[0].split("."):
        digits = component[: len(component) - len(component.lstrip("0123456789"))]
        if not digits:
            break
        result.append(int(digits))
    return tuple(result)


def dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _python() -> DoctorCheck:
    finding = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < PYTHON:
        return DoctorCheck(
            "Python", "missing", finding, f"install Python {dotted(PYTHON)} or newer"
        )
    return DoctorCheck("Python", "ok", finding)


def _versioned(package: str, floor: tuple[int, ...] = ()) -> DoctorCheck:
    version = _version(package)
    want = f'{_PIP} "{package}>={dotted(floor)}"' if floor else f"{_PIP} {package}"
    if find_spec(MODULES.get(package, package)) is None:
        missing = (
            "not installed"
            if version is None
            else f"{version} is installed without its files"
        )
        return DoctorCheck(
            package,
            "missing",
            missing,
            want if version is None else f"{want} --force-reinstall",
        )
    if version is not None and numbers(version) < floor:
        return DoctorCheck(
            package, "missing", f"{version} is older than {dotted(floor)}", want
        )
    return DoctorCheck(package, "ok", version or "of an unknown version")


def _imported(package: str) -> DoctorCheck:
    """Check that a package is there and can be imported."""
    check, module = _versioned(package), MODULES.get(package, package)
    if check.state == "missing":
        return check
    try:
        import_module(module)
    except Exception as error:  # whatever its code raises
        return unimportable(module, error) or check
    return check


def torch_check() -> DoctorCheck:
    """Check torch by its import."""
    check = _versioned("torch", TORCH)
    if check.state == "missing":
        return check
    try:
        import torch
    except Exception as error:
        return DoctorCheck(
            "torch",
            "missing",
            f"{check.found} does not import: {_first_line(error)}",
            f"{_PIP} -U torch",
        )
    return DoctorCheck(
        "torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads"
    )


def _devices() -> DoctorCheck:
    """Check which devices torch supports. A CPU is sufficient."""
    try:
        from tapedeck import devices
    except Exception:
        return DoctorCheck("devices", "note", "unknown without torch")
    names = (f"{name} ({devices.full_name(name)})" for name in devices.names())
    return DoctorCheck("devices", "ok", ", ".join(("cpu", *names)))


def _torchvision() -> DoctorCheck:
    version = _version("torchvision")
    if version is None:
        return DoctorCheck(
            "torchvision", "missing", "not installed", f"{_PIP} torchvision"
        )
    try:
        from app.util.torchvision_import import import_torchvision

        import_torchvision()
        compiled = import_torchvision("extension")._has_ops()
    except Exception as error:
        finding = f"{version} does not import: {_first_line(error)}"
        return DoctorCheck(
            "torchvision",
            "missing",
            finding,
            f"{_PIP} -U torch torchvision (they must match)",
        )
    if not compiled:
        finding = f"{version}, without its compiled operators (nms, roi_align), which were built for another torch"
        return DoctorCheck("torchvision", "ok", finding)
    return DoctorCheck("torchvision", "ok", version)


def _first_line(error: BaseException) -> str:
    return (
        str(error).strip().splitlines()[0]
        if str(error).strip()
        else type(error).__name__
    )


def pyside_fault(version: str) -> str | None:
    """Explain why a release of PySide6 is unsupported, or return None.

    >>> pyside_fault("6.11.3")
    >>> pyside_fault("6.12.0")
    '6.12.0 is not supported: 6.12.0 loses references to None and aborts while painting'
    """
    release = numbers(version)
    if release[:3] in PYSIDE_BAD:
        return f"{version} is a broken release"
    if release >= PYSIDE_END:
        return f"{version} is not supported: 6.12.0 loses references to None and aborts while painting"
    if release < PYSIDE:
        return f"{version} is older than {dotted(PYSIDE)}"
    return None


def _pyside() -> DoctorCheck:
    version = _version("PySide6-Essentials")
    cure = (
        f'{_PIP} "PySide6-Essentials>={dotted(PYSIDE)},!=6.10.1,<{dotted(PYSIDE_END)}"'
    )
    if version is None or qt_folder() is None:
        return DoctorCheck("PySide6", "missing", "not installed", cure)
    fault = pyside_fault(version)
    return (
        DoctorCheck("PySide6", "missing", fault, cure)
        if fault
        else DoctorCheck("PySide6", "ok", version)
    )


def qt_libraries() -> tuple[DoctorCheck, ...]:
    """Check the libraries that Qt links to. Only on Linux does the system provide these."""
    folder = qt_folder()
    if folder is None or not sys.platform.startswith("linux"):
        return ()
    missing = missing_libraries(
        [
            *sorted(folder.glob("QtWidgets.*.so")),
            folder / "Qt" / "plugins" / "platforms" / "libqoffscreen.so",
        ]
    )
    if missing:
        return (
            DoctorCheck(
                "Qt libraries",
                "missing",
                f"not found: {', '.join(missing)}",
                install_line(missing),
            ),
        )
    return (DoctorCheck("Qt libraries", "ok", "all found"),)


def _window() -> DoctorCheck:
    shown, hindrance = display(), obstacle()
    if hindrance is None:
        return DoctorCheck(
            "window", "ok", shown or "one that shows nothing: QT_QPA_PLATFORM"
        )
    state: State = "missing" if shown or os.environ.get("QT_QPA_PLATFORM") else "note"
    return DoctorCheck("window", state, hindrance.reason, hindrance.cure)


def _dot() -> DoctorCheck:
    path = shutil.which("dot")
    if path is None:
        finding = "not found: pictures can be laid out by Tapedeck alone"
        return DoctorCheck("dot", "note", finding, install_line(["dot"]))
    version = subprocess.run([path, "-V"], capture_output=True, text=True, check=False)
    return DoctorCheck("dot", "ok", (version.stderr or version.stdout).strip() or path)


def _fonts() -> DoctorCheck:
    """Check for fonts of the system, on Linux: they have the characters that the window's own lack."""
    if not sys.platform.startswith("linux"):
        return DoctorCheck(
            "fonts", "ok", "the window's own, and the system's for what they lack"
        )
    lister = shutil.which("fc-list")
    listing = (
        subprocess.run(
            [lister, ":", "family"], capture_output=True, text=True, check=False
        )
        if lister
        else None
    )
    families = {
        name.strip()
        for line in (listing.stdout if listing else "").splitlines()
        for name in line.split(",")
    }
    if count := len(families - {""}):
        return DoctorCheck(
            "fonts",
            "ok",
            f"the window's own, and {count} families of the system for what they lack",
        )
    missing = (
        "none of the system: what the window's own lack, as Chinese, is shown as boxes"
    )
    return DoctorCheck("fonts", "note", missing, install_line(["fonts"]))


def _data_folder() -> DoctorCheck:
    """Check whether downloads can be saved, by a temporary file in the nearest existing folder."""
    from app.util.user_folders import default_root

    folder = default_root()
    nearest = next(
        ancestor for ancestor in (folder, *folder.parents) if ancestor.exists()
    )
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return DoctorCheck(
                "data folder",
                "ok",
                f"{folder}, {shutil.disk_usage(nearest).free / 1e9:.1f} GB free",
            )
    except OSError as error:
        finding = f"{folder} cannot be written: {error.strerror or error}"
        return DoctorCheck(
            "data folder",
            "missing",
            finding,
            f"fix the permissions of {nearest}, or free some space",
        )


if __name__ == "__main__":
    sys.exit(print_report())
