"""The map of the house, kept true: who may import whom, where Qt and torch may appear, and what is never done.

Every import is read with `ast`, lazy ones inside functions and those for type checkers too. The tables at the top are
the documentation; a new room or a new arrow is a line there, and a reason in the commit.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
APP = ROOT / "app"

# --- The tables -------------------------------------------------------------------------------------------------

# Anybody may import these; they import one another at most.
LEAVES = """
    atomic file_lock leftovers frozen source layer_files rng resources torchvision_import torch_loading openmp
    regular_files tensor_files garbage
"""

# Values and pure functions over them.
PURE = """
    project project_file run_file sheet_file journal journal_writer library trust own_layers preflight several_outputs
    net_paths knob_checks cpu_threads inspection random_batch examples early_imports builder data origin drawing_digest
    model_inits synthetic_data project_limits
    training telemetry autograd export drawing layout graphviz_export state_dicts start_weights weights_files runs
    remote
"""

# The only mutable truth, and what runs beside the window's thread.
GLUE = "document settings background training_thread playback_thread"

# Who may import whom. An entry for `room.module` adds to that of its room; a room may import all of itself.
ARROWS = {
    "interrupts": "",  # Ctrl+C
    "main": f"interrupts cli views {GLUE} {PURE} doctor",
    "cli_import": "cli cli_weights import_child import_words model_import own_layers project_file builder export"
    " project synthetic_data",
    "cli_weights": "cli state_dicts start_weights project_file export",
    "cli_export": "cli project builder preflight export drawing_digest runs",
    "cli_train": "cli cli_failures project preflight start_weights runs remote training run_output run_results",
    "run_results": "project runs training export views",  # what the command leaves: weights, code, pictures
    "cli_runs": "cli project preflight own_layers builder data runs training.lost",
    "cli_try": "cli cli_failures preflight training data.sources drawing",
    "cli_data": "cli data",
    "cli_evaluate": "cli project preflight training data export runs",
    "cli_streams": "",
    "cli_failures": "cli training.events",  # what is said of code that raised
    "cli": f"cli_autograd cli_data cli_try cli_evaluate cli_export cli_import cli_train cli_runs views {PURE} doctor"
    " run_output run_results cli_streams cli_failures",
    "cli_autograd": "cli cli_autograd_asked snippet_child autograd model_import trust",
    "cli_autograd_asked": "cli cli_autograd autograd inspection own_layers preflight data runs",
    "views": f"{GLUE} {PURE} import_child import_words snippet_child model_import doctor",
    "model_import": "project builder",
    "import_words": "",  # what can be done where it cannot be imported
    # The process in which a model is read, and what becomes of the model there.
    "import_child": "import_pipeline parity model_import own_layers project project_file weights_files builder"
    " remote.process",
    "import_pipeline": "model_import model_inits project project_file origin drawing_digest own_layers"
    " start_weights state_dicts weights_files builder export training parity several_outputs",
    "parity": "builder export.measure export.against_source model_import",  # an imported net against its live model
    "origin": "builder.graph",  # where an imported net comes from
    "model_inits": "project origin builder",  # what of the initialisation of its model a drawing has not
    "drawing_digest": "project sheet_file builder.blocks builder.sheet export.imported",
    "snippet_child": "autograd drawing remote.process",  # the process in which a person's own lines run
    "run_output": "training",
    "document": PURE,
    "background": PURE,
    "training_thread": PURE,
    "playback_thread": "autograd telemetry.ring",  # plays a kept graph; the window sees plain data alone
    "settings": "data.sources",  # the default of the data folder is stated there
    "doctor": "data system_packages",
    "system_packages": "",
    "state_dicts": "export training.start",  # what a file holds against what a net has
    "weights_files": "origin training.config training.start",  # where they lie: a store, then beside the project
    "start_weights": "state_dicts weights_files project project_file builder.problems export training",
    "net_paths": "project builder",  # which modules there are to choose from
    "knob_checks": "project builder data.spec training net_paths",  # knobs of the training against net and data
    "several_outputs": "project builder data training.balance training.choices training.config",  # outputs and targets
    "synthetic_data": "project builder data.sources",  # data that fit a net, and cures that leave the net as it is
    "cpu_threads": "builder",  # how many a run takes that nobody chose a number for
    # Do net, data and loss fit.
    "preflight": "project builder data training start_weights knob_checks several_outputs"
    " synthetic_data cpu_threads",
    "early_imports": "",  # by name, what the pages want
    "inspection": "builder data training autograd random_batch",  # one batch through the net, for the tape
    "random_batch": "training",  # inputs and targets of a net's own shapes, and the loss that takes them
    "examples": "project project_file preflight builder data.sources",  # what is said of an example before it is opened
    "run_file": "sheet_file data.config training.config",
    "project_limits": "builder.limits",  # how much a file may hold, counted before anything is made of it
    "project_file": "project origin run_file sheet_file builder data.config training.config weights_files"
    " project_limits",
    "sheet_file": "builder",
    "library": "project project_file builder",  # blocks that a person keeps are project files
    "journal": "project project_file project_limits weights_files",  # unsaved work of a window, for after a crash
    "journal_writer": "journal",  # on a thread of its own
    "trust": "",  # hashes that a person said may run
    "own_layers": "project trust builder data",  # which files of a project may run where no window asks
    "project": "origin builder.graph builder.blocks builder.sheet data.config training.config",
    "builder": "",
    "builder.drawing": "drawing",
    "autograd": "telemetry.histogram",  # how values are spread is counted in one place
    "autograd.drawing": "drawing",
    "autograd.drawn": "drawing",
    "autograd.replay_svg": "drawing layout",  # a page that plays a pass stands by itself, its picture too
    "autograd.replay_html": "drawing layout",
    "autograd.checkpointing": "drawing",  # how bytes are written
    "training": "data telemetry",
    "telemetry": "",
    "runs": "project project_file run_file data training telemetry weights_files export.weights"
    " export.weights_choice",  # what is kept of one
    "remote": "training data telemetry export builder.literals",  # a run in other processes: its job and events as data
    "data": "",
    "export": "data training origin",
    "layout": "drawing",
    "graphviz_export": "drawing",
    "drawing": "",
}

# Arrows that are taken inside a function alone: a command draws no picture unless one is asked for.
LAZY_ONLY = {("cli", "views"), ("run_results", "views"), ("main", "views"), ("main", "cli")}

# Where Qt may appear. `cli` asks a view.
QT_ROOMS = f"main views {GLUE}"
QT = {"PySide6", "shiboken6", "pyqtgraph", "pytestqt"}

# Modules that are about tensors and import torch at their top. Everything else imports it inside a function, and
# imports these inside a function, so that the window stands before torch is loaded.
TORCH_MODULES = """
    autograd builder.analysis builder.calls builder.class_args builder.class_code builder.codegen builder.call_code
    builder.constructor_code builder.containers builder.dependence builder.made_code builder.cost
    builder.custom_calls builder.explain builder.explain_joins builder.explain_layers builder.explain_shapes
    builder.explain_told builder.findings builder.importer builder.introspect builder.shapes builder.step_problems
    builder.variables data.file_readers data.loaders data.preview data.readers data.splits data.streams data.targets
    data.transforms export telemetry training.checkpoint training.recipes training.several training.choices
    training.devices training.loop training.metrics import_pipeline parity random_batch
"""
HEAVY = {"torch", "torchvision", "sklearn", "scipy", "safetensors"}

# Files that may be longer than LONGEST, each with its reason.
LONGEST = 400
LONG_FILES: dict[str, str] = {}

# What can run text or bytes that somebody else wrote, the one module that compiles the source we generate, the one that
# compiles files of layers, once a person trusts them, and the child process that compiles what a person typed.
UNSAFE_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "compile"}
COMPILES_SOURCE = {"app.source", "app.layer_files", "app.snippet_child"}

# --- Reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    """`importer` and `target` are dotted names; `line` is where; `lazy` is inside a function; `typing` for checkers."""

    importer: str
    target: str
    line: int
    lazy: bool
    typing: bool

    def __str__(self) -> str:
        return f"{self.importer} (line {self.line}) imports {self.target}"


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, for all of app."""
    found = {}
    for file in sorted(APP.rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text("utf-8"))


@cache
def imports() -> tuple[Import, ...]:
    return tuple(found for name in modules() for found in _imports_of(name))


def _imports_of(name: str) -> Iterator[Import]:
    def walk(node: ast.AST, lazy: bool, typing: bool) -> Iterator[Import]:
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for target in _targets(node, name):
            yield Import(name, target, node.lineno, lazy, typing)  # type: ignore[attr-defined]
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, lazy, typing or (guarded and child in node.body))  # type: ignore[attr-defined]

    yield from walk(tree(name), False, False)


def _targets(node: ast.AST, importer: str) -> list[str]:
    """The modules that a statement or a call imports: `from app.builder import graph` imports `app.builder.graph`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = importer if modules()[importer].name == "__init__.py" else importer.rpartition(".")[0]
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*parents, *([node.module] if node.module else [])])
        inner = [f"{base}.{alias.name}" for alias in node.names]
        return [name if name in modules() else base for name in inner]
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"import_module", "__import__"}:
        return [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return []


def inside(name: str, places: str) -> bool:
    """Whether a module lies in one of `places`, which are dotted names without `app.`."""
    short = name.removeprefix("app.")
    return any(short == place or short.startswith(f"{place}.") for place in places.split())


def room(name: str) -> str:
    return name.removeprefix("app.").partition(".")[0]


def allowed(importer: str, target: str) -> bool:
    short = importer.removeprefix("app.")
    entries = [places for key, places in ARROWS.items() if short == key or short.startswith(f"{key}.")]
    return any(inside(target, places) for places in entries)


def within_app() -> Iterator[Import]:
    """Imports of one room by another; the leaves and `app` itself are everybody's."""
    for found in imports():
        ours = found.target.startswith("app.") and found.importer != "app"
        if ours and room(found.importer) != room(found.target) and not inside(found.target, LEAVES):
            yield found


def told(found: list[Import]) -> str:
    return "\n".join(map(str, found))


# --- The rules --------------------------------------------------------------------------------------------------


def test_every_room_is_on_the_map() -> None:
    known = {key.partition(".")[0] for key in ARROWS} | set(LEAVES.split())
    unknown = sorted({room(name) for name in modules() if name != "app"} - known)
    assert not unknown, f"say in ARROWS what these may import: {unknown}"


def test_imports_follow_the_arrows() -> None:
    wrong = [found for found in within_app() if not inside(found.importer, LEAVES)]
    wrong = [found for found in wrong if not allowed(found.importer, found.target)]
    assert not wrong, told(wrong)


def test_leaves_import_only_leaves() -> None:
    wrong = [found for found in within_app() if inside(found.importer, LEAVES)]
    assert not wrong, told(wrong)


def test_what_is_to_be_imported_late_is_imported_late() -> None:
    wrong = [found for found in within_app() if (room(found.importer), room(found.target)) in LAZY_ONLY]
    wrong = [found for found in wrong if not found.lazy]
    assert not wrong, told(wrong)


def test_what_is_imported_from_app_exists() -> None:
    wrong = [found for found in imports() if found.target.split(".")[0] == "app" and found.target not in modules()]
    assert not wrong, told(wrong)


def test_qt_stays_in_its_rooms() -> None:
    wrong = [found for found in imports() if found.target.split(".")[0] in QT and not inside(found.importer, QT_ROOMS)]
    assert not wrong, told(wrong)


def test_heavy_packages_are_imported_late_or_in_torch_modules() -> None:
    wrong = [found for found in imports() if found.target.split(".")[0] in HEAVY and not (found.lazy or found.typing)]
    wrong = [found for found in wrong if not inside(found.importer, TORCH_MODULES)]
    assert not wrong, told(wrong)


def test_torch_modules_are_imported_late_by_all_others() -> None:
    """Judged by what a module does, not by its name: one that imports torch at its top is a torch module."""
    at_top = [found for found in imports() if not (found.lazy or found.typing)]
    heavy = {found.importer for found in at_top if found.target.split(".")[0] in HEAVY}
    while grown := {found.importer for found in at_top if _loads(found.target) & heavy} - heavy:
        heavy |= grown
    wrong = [found for found in at_top if _loads(found.target) & heavy and not inside(found.importer, TORCH_MODULES)]
    assert not wrong, told(wrong)


def _loads(target: str) -> set[str]:
    """Importing `app.data.config` runs `app` and `app.data` first."""
    parts = target.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}


def _import_all(names: list[str], unwanted: set[str]) -> set[str]:
    """Import `names` in a clean process; which of `unwanted` came along."""
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return unwanted & set(done.stdout.split())


def test_the_window_does_not_wait_for_torch() -> None:
    names = [name for name in modules() if inside(name, f"main views {GLUE}")]
    assert _import_all(names, HEAVY) == set()


def test_everything_else_runs_without_qt() -> None:
    names = [name for name in modules() if not inside(name, QT_ROOMS)]
    assert _import_all(names, QT) == set()


def test_files_are_short_enough_to_be_read() -> None:
    lengths = {str(file.relative_to(ROOT)): len(file.read_text("utf-8").splitlines()) for file in modules().values()}
    long = {name: length for name, length in lengths.items() if length > LONGEST and name not in LONG_FILES}
    assert not long, f"over {LONGEST} lines, so each is probably two things: {long}"
    assert not set(LONG_FILES) - {name for name in lengths if lengths[name] > LONGEST}, "LONG_FILES names too many"


def test_nothing_unpickles() -> None:
    wrong = [found for found in imports() if found.target.split(".")[0] in UNSAFE_IMPORTS]
    assert not wrong, told(wrong)


def test_only_the_source_is_compiled() -> None:
    wrong = [
        f"{name} (line {node.lineno}) calls {node.func.id}"
        for name in modules()
        if name not in COMPILES_SOURCE
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in UNSAFE_CALLS
    ]
    assert not wrong, "\n".join(wrong)


def test_torch_load_takes_weights_only() -> None:
    wrong = [
        f"{name} (line {node.lineno}): {ast.unparse(node)}"
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"torch.load", "load_state_dict_from_url"}
        if not any(word.arg == "weights_only" and ast.unparse(word.value) == "True" for word in node.keywords)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_error_is_swallowed_whole() -> None:
    wrong = [
        f"{name} (line {node.lineno})"
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.ExceptHandler)
        if node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
        if all(isinstance(line, ast.Pass) for line in node.body)
    ]
    assert not wrong, "\n".join(wrong)


# --- The reader itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("importer", "target", "fine"),
    [
        ("app.builder.rules", "app.training.loop", False),
        ("app.builder.rules", "app.autograd.capture", False),
        ("app.autograd.layers", "app.builder.plan", False),
        ("app.training.loop", "app.builder.graph", False),
        ("app.builder.drawing", "app.drawing", True),
        ("app.builder.plan", "app.drawing", False),
        ("app.project", "app.builder.graph", True),
        ("app.project", "app.builder.plan", False),
        ("app.views.canvas.scene", "app.document", True),
        ("app.document", "app.views.theme", False),
        ("app.views.theme", "app.main", False),
    ],
)
def test_the_table_says_what_it_means(importer: str, target: str, fine: bool) -> None:
    assert allowed(importer, target) is fine


def test_the_reader_sees_lazy_relative_and_dynamic_imports() -> None:
    module = ast.parse(
        "from app.builder import graph\n"
        "from . import config\n"
        "def late():\n    import torch\n    importlib.import_module('app.project')\n"
        "if TYPE_CHECKING:\n    from torch import nn\n"
    )
    found = [(target, type(node).__name__) for node in ast.walk(module) for target in _targets(node, "app.data.config")]
    assert sorted(target for target, _ in found) == [
        "app.builder.graph",
        "app.data.config",
        "app.project",
        "torch",
        "torch",
    ]


def test_the_packages_of_pyproject_are_pinned() -> None:
    """Every package that pyproject names has one exact version in constraints.txt."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = {_plain(re.split(r"[^\w.-]", need)[0]) for group in groups for need in group}
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = {_plain(line.split("==")[0]) for line in lines if "==" in line and not line.startswith("#")}
    assert not wanted - pins


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()
