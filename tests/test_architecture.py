"""The map of the house, kept true: who may import whom, where Qt and torch may appear, and what is never done.

Every import is read with `ast`, lazy ones inside functions and those for type checkers too. The tables at the top are
the documentation; a new room or a new arrow is a line there, and a reason in the commit.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from app.engine.values import IMPORTABLE
from app.util import gc_pause
from scripts.import_graph import IMPORTING, Import, SourceTree, arrows, circles
from scripts.import_graph import last_name as _last

ROOT = Path(__file__).resolve().parent.parent
APP = ROOT / "app"

# --- The tables -------------------------------------------------------------------------------------------------

# Anybody may import these; they import one another at most, `source` what is in `util`.
LEAVES = "util source"

# Who may import whom, from the top of the house down. An entry for `room.module` adds to that of its room; a room may
# import all of itself, and nothing imports what stands above it.
ARROWS = {
    "main": "cli",
    "cli": "engine runs preflight project export training data autograd builder sources"
    " diagram graphviz_export views",
    "views": "training_thread engine runs preflight project training data telemetry autograd builder observe"
    " sources diagram graphviz_export",
    "training_thread": "engine project runs training telemetry",
    # What a process of ours does, and how it is spoken to.
    "engine": "preflight project export training data telemetry autograd builder observe sources",
    "engine.tasks": "runs",  # weights and checkpoints of kept runs
    "engine.requests": "runs.checkpoint_files runs.record",  # values
    "runs": "project export.weights training data telemetry",
    "runs.newest": "export.weights_choice",
    "preflight": "project training data builder sources",  # do net, data and loss fit
    "project": "export.errors export.weights training data builder sources",
    "export": "training data",
    "training": "data telemetry",
    "data": "",
    "telemetry": "",
    "autograd": "telemetry.histogram telemetry.histogram_of",  # how values are spread is counted in one place
    "autograd.pictures": "diagram",
    "observe": "",
    "sources": "",
    "sources.structure": "observe.observation",  # what a file describes is an observation too
    "sources.pt2_file": "observe.observation",
    "sources.onnx_file": "observe.observation",
    "builder": "",
    "builder.diagram": "diagram",
    "builder.arrange": "diagram.layered diagram.layout_model",  # one engine places nodes and boxes
    "graphviz_export": "diagram",
    "diagram": "",
}

# Each folder of it is a feature. It stands on the kernel, which is all else, and may import of another feature its
# `api` alone; what its files may import, their names say.
SHELF = "features"
# Files of a feature that compute with tensors, in an engine or a command.
COMPUTES = {"task", "compute", "check", "run_report"}
# Files of a feature that import neither Qt nor torch: they travel between processes.
TRAVELS = {"values"}

# Arrows that are taken inside a function alone: a command draws no picture unless one is asked for.
LAZY_ONLY = {("cli", "views"), ("main", "cli")}

# Where Qt may appear. `cli` asks a view.
QT_ROOMS = "main views project.document training_thread"
QT = {"PySide6", "shiboken6", "pyqtgraph", "pytestqt"}

HEAVY = {"torch", "torchvision", "sklearn", "scipy", "safetensors"}
# What no module of the window may import directly or through another; safetensors' own reader is light.
HEAVY_LATE = {"torch", "torchvision", "sklearn", "torchmetrics"}
# Parts of packages that are light otherwise.
HEAVY_PARTS = {"safetensors.torch"}
# Where the window's process runs, beside features; it may also import what a message names (`values.IMPORTABLE`).
WINDOW_PLACES = "views main training_thread engine.client"
# What `main` imports and the window never does: a command computes in its own process.
OTHER_PROCESSES = {("main", "cli")}
# Modules that import by name, in a process that they begin: an engine, or what engines are forked off.
BY_NAME_ELSEWHERE = "engine.entries engine.fork_server engine.server"

# What can run text or bytes that somebody else wrote, the one module that compiles the source we generate, the one that
# compiles files of layers, once a person trusts them, the one that compiles what models import, and the child process
# that compiles what a person typed.
UNSAFE_IMPORTS = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "shelve",
    "marshal",
    "joblib",
}
UNSAFE_CALLS = {"eval", "exec", "compile"}
COMPILES_SOURCE = {
    "app.source.compiled",
    "app.source.layer_modules",
    "app.source.own_imports",
    "app.features.snippets.task",
}

# What leaves a folder or a file behind if the process is killed, and who may use it: what the rest takes in its place,
# and the text of a script that is exported, which has the standard library alone.
TEMPORARY = {"TemporaryDirectory", "NamedTemporaryFile", "mkdtemp", "mkstemp"}
OWN_TEMPORARY = {"app.util.leftovers", "app.training.launch"}

# Known as one to itself and to the program that opens it alone. All others are made with a workspace.
WINDOW_CLASS = "MainWindow"

# Features of the window, each a folder with a `feature.py`, meet in the workspace and import of one another only these:
# services that the workspace is made of, and what draws or edits one thing wherever it stands.
LENT = {
    "views.training.charts": "charts of what a run measures",
}

# What a module says of itself whose parts are made with it and import it for type checkers alone, closing a circle.
WHOLE = "# A whole, which its parts import for type checkers alone: "

# --- Reading ----------------------------------------------------------------------------------------------------


TREE = SourceTree(ROOT, ("app",))
WATCHING = SourceTree(ROOT, ("tapedeck",))
nodes = TREE.nodes


def modules() -> dict[str, Path]:
    """Return dotted name -> file, for all of app."""
    assert len(TREE.modules) > 500, "every rule is about these"
    return TREE.modules


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """The collector would look through a million nodes again and again, here and in each test that comes after."""
    with gc_pause.put_off():
        yield
        TREE.forget_trees()


def imports() -> tuple[Import, ...]:
    result = TREE.imports
    assert (
        len(result) > 5000
        and any(found.lazy for found in result)
        and any(found.typing for found in result)
    )
    return result


def inside(name: str, places: str) -> bool:
    """Whether a module lies in one of `places`, which are dotted names without `app.`."""
    short = name.removeprefix("app.")
    return any(
        short == place or short.startswith(f"{place}.") for place in places.split()
    )


def role(name: str) -> str:
    """Return what a file of a feature is for, which its name says; "" for all else."""
    parts = name.split(".")
    return parts[3] if parts[:2] == ["app", SHELF] and len(parts) > 3 else ""


def may_use_qt(name: str) -> bool:
    if inside(name, QT_ROOMS):
        return True
    return is_of_the_window(name) and role(name) != "" and role(name) not in TRAVELS


def is_of_a_command(name: str) -> bool:
    """Whether a file of a feature declares a command, or is the `cli` that carries one out."""
    return role(name) == "cli" or role(name).endswith("command")


def is_of_the_window(name: str) -> bool:
    """Whether the window's process imports a module, or may be made to by what it receives."""
    return (
        inside(name, WINDOW_PLACES)
        or IMPORTABLE.fullmatch(name.removeprefix("app.")) is not None
        or role(name) != ""
        and role(name) not in COMPUTES
        and not is_of_a_command(name)
    )


def room(name: str) -> str:
    return name.removeprefix("app.").partition(".")[0]


def allowed(importer: str, target: str) -> bool:
    short = importer.removeprefix("app.")
    entries = [
        places
        for key, places in ARROWS.items()
        if short == key or short.startswith(f"{key}.")
    ]
    return any(inside(target, places) for places in entries)


def within_app() -> Iterator[Import]:
    """Imports of one room by another; the leaves and `app` itself are everybody's."""
    for found in imports():
        ours = found.target.startswith("app.") and found.importer != "app"
        if (
            ours
            and room(found.importer) != room(found.target)
            and not inside(found.target, LEAVES)
            and room(found.importer) != SHELF
        ):
            yield found


def told(found: list[Import]) -> str:
    return "\n".join(map(str, found))


# --- The rules --------------------------------------------------------------------------------------------------


def test_every_room_is_on_the_map() -> None:
    known = {key.partition(".")[0] for key in ARROWS} | {SHELF, *LEAVES.split()}
    rooms = {room(name) for name in modules() if name != "app"}
    unknown = sorted(rooms - known)
    assert len(rooms) > 10 and not unknown, (
        f"say in ARROWS what these may import: {unknown}"
    )


def test_imports_follow_the_arrows() -> None:
    across = [found for found in within_app() if not inside(found.importer, LEAVES)]
    wrong = [found for found in across if not allowed(found.importer, found.target)]
    assert len(across) > 2000 and not wrong, told(wrong)


def test_every_arrow_is_taken() -> None:
    taken = [found for found in within_app() if not inside(found.importer, LEAVES)]
    listed = {
        (key, place) for key, places in ARROWS.items() for place in places.split()
    }
    by = [
        [
            (key, place)
            for key, place in listed
            if inside(found.importer, key) and inside(found.target, place)
        ]
        for found in taken
    ]
    unused = listed - {arrow for each in by if len(each) == 1 for arrow in each}
    assert len(listed) > 50 and len(taken) > 2000 and not unused, (
        f"ARROWS names too many: {sorted(unused)}"
    )


def test_leaves_import_only_leaves() -> None:
    of_leaves = [
        found
        for found in imports()
        if inside(found.importer, LEAVES) and found.target in modules()
    ]
    wrong = [found for found in of_leaves if not inside(found.target, f"{LEAVES} app")]
    assert len(of_leaves) > 30 and not wrong, told(wrong)


def test_the_package_that_watches_imports_the_standard_library_and_torch_alone() -> (
    None
):
    """It runs in the process of a person's script; the program imports what follows of it."""
    own = {"tapedeck", "torch", *sys.stdlib_module_names}
    files = sorted((ROOT / "tapedeck").glob("*.py"))
    nodes = [
        (file.name, node)
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
    ]
    wrong = [
        f"{name}: {target}"
        for name, node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for target in _absolute(node)
        if target.split(".")[0] not in own
    ]
    assert len(files) > 5 and not wrong, wrong
    used = {
        found.target for found in imports() if found.target.split(".")[0] == "tapedeck"
    }
    assert "tapedeck.frames" in used and used <= {
        "tapedeck",
        "tapedeck.commands",
        "tapedeck.compiler_log",
        "tapedeck.frames",
        "tapedeck.norms",
        "tapedeck.devices",
        "tapedeck.plugin",
    }, used


def _absolute(node: ast.Import | ast.ImportFrom) -> list[str]:
    return (
        [alias.name for alias in node.names]
        if isinstance(node, ast.Import)
        else [node.module or "relative"]
    )


def test_what_is_to_be_imported_late_is_imported_late() -> None:
    late = [
        found
        for found in within_app()
        if (room(found.importer), room(found.target)) in LAZY_ONLY
    ]
    wrong = [found for found in late if not found.lazy]
    assert {
        (room(found.importer), room(found.target)) for found in late
    } == LAZY_ONLY and not wrong, told(wrong)


def test_what_is_imported_from_app_exists() -> None:
    ours = [found for found in imports() if found.target.split(".")[0] == "app"]
    wrong = [found for found in ours if found.target not in modules()]
    assert len(ours) > 4000 and not wrong, told(wrong)


def test_qt_stays_in_its_rooms() -> None:
    of_qt = [found for found in imports() if found.target.split(".")[0] in QT]
    wrong = [found for found in of_qt if not may_use_qt(found.importer)]
    assert len(of_qt) > 500 and not wrong, told(wrong)


def _loads(target: str) -> set[str]:
    """Importing `app.data.config` runs `app` and `app.data` first."""
    parts = target.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}


def _import_all(names: list[str], unwanted: set[str]) -> set[str]:
    """Import `names` in a clean process; which of `unwanted` came along."""
    assert len(names) > 300
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *names],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return unwanted & set(done.stdout.split())


def test_the_window_does_not_wait_for_torch() -> None:
    names = [name for name in modules() if may_use_qt(name) or role(name) in TRAVELS]
    assert _import_all(names, HEAVY) == set()


def test_the_window_asks_engines_and_imports_nothing_that_imports_torch() -> None:
    """Not even late: what computes with tensors is asked of an engine, by a request."""
    direct = {
        found.importer
        for found in imports()
        if not found.typing and found.target.split(".")[0] in HEAVY_LATE
    }
    ours = [
        found
        for found in imports()
        if is_of_the_window(found.importer) and not found.typing
    ]
    wrong = [
        found
        for found in ours
        if found.target in direct
        or inside(found.target, "engine.tasks engine.watched.step_server")
        or role(found.target) in COMPUTES
    ]
    wrong += [found for found in ours if found.target.split(".")[0] in HEAVY]
    assert len(direct) > 100 and len(ours) > 3000 and not wrong, told(wrong)


def test_nothing_that_imports_torch_can_be_reached_from_the_window() -> None:
    """Along any chain of imports, late ones too: `X -> Y -> Z` names the shortest to each module that does."""
    roots = [name for name in modules() if is_of_the_window(name)]
    found = _chains(roots)
    heavy = {
        each.importer
        for each in imports()
        if not each.typing and _is_heavy(each.target)
    }
    wrong = [" -> ".join(found[name]) for name in sorted(heavy & found.keys())]
    assert len(roots) > 300 and len(found) > len(roots) + 200 and len(heavy) > 100, (
        "it looked at less than there is"
    )
    assert not wrong, "\n".join(wrong)


def _is_heavy(target: str) -> bool:
    return target.split(".")[0] in HEAVY_LATE or target in HEAVY_PARTS


def _chains(roots: list[str]) -> dict[str, tuple[str, ...]]:
    """The shortest chain of imports from one of `roots` to each module that it leads to."""
    below: dict[str, set[str]] = {}
    for each in imports():
        if (
            not each.typing
            and (room(each.importer), room(each.target)) not in OTHER_PROCESSES
        ):
            below.setdefault(each.importer, set()).update(
                _loads(each.target) & modules().keys()
            )
    for name in modules():
        if not inside(name, BY_NAME_ELSEWHERE):
            below.setdefault(name, set()).update(_imported_by_name(nodes(name)))
    found = {root: (root,) for root in roots}
    waiting = deque(roots)
    while waiting:
        name = waiting.popleft()
        for target in sorted(below.get(name, ())):
            if target not in found:
                found[target] = (*found[name], target)
                waiting.append(target)
    return found


def _imported_by_name(parts: Sequence[ast.AST]) -> set[str]:
    """A module that imports by a name that it computes may import every module that its strings name."""
    calls = [node for node in parts if isinstance(node, ast.Call)]
    called = [call for call in calls if _last(call.func) in IMPORTING]
    if all(isinstance(call.args[0], ast.Constant) for call in called):
        return set()
    texts = [
        node.value
        for node in parts
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    words = {word for text in texts for word in text.split()}
    return {
        name
        for word in words
        for name in (word, f"app.{word}")
        if name in modules() and name != "app"
    }


def test_everything_else_runs_without_qt() -> None:
    names = [name for name in modules() if not may_use_qt(name)]
    assert _import_all(names, QT) == set()


def test_values_are_structs() -> None:
    """One kind of value travels and is stored; hundreds of dataclasses would keep a person waiting for the window."""
    wrong = [
        f"{name} (line {node.lineno})"
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if any(alias.name == "dataclass" for alias in node.names)
    ]
    structs = [
        name
        for name in modules()
        if any(isinstance(n, ast.ClassDef) and _is_struct(n) for n in nodes(name))
    ]
    assert len(structs) > 200 and not wrong, f"derive it from msgspec.Struct: {wrong}"


def _is_struct(node: ast.ClassDef) -> bool:
    return any(
        ast.unparse(base).split("[")[0].split(".")[-1] == "Struct"
        for base in node.bases
    )


def test_temporary_folders_are_removed_when_a_process_is_killed() -> None:
    users = {
        name
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.Attribute)
        and node.attr in TEMPORARY
        and _last(node.value) == "tempfile"
    }
    assert users == OWN_TEMPORARY, (
        f"take a util.leftovers.TemporaryFolder: {users ^ OWN_TEMPORARY}"
    )


def test_nothing_unpickles() -> None:
    wrong = [
        found for found in imports() if found.target.split(".")[0] in UNSAFE_IMPORTS
    ]
    assert not wrong, told(wrong)


def test_only_the_source_is_compiled() -> None:
    callers = {
        name
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in UNSAFE_CALLS
    }
    known = COMPILES_SOURCE & modules().keys()  # a feature need not be there
    assert callers == known, f"eval, exec or compile: {callers ^ known}"


def _annotations(name: str) -> Iterator[ast.expr]:
    for node in nodes(name):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.returns is not None
        ):
            yield node.returns


def test_nobody_reaches_for_the_window() -> None:
    """Neither by an annotation, which may be text, nor by its import: who has the window can reach everything."""
    wrong = [
        f"{name} (line {annotation.lineno}) is annotated {ast.unparse(annotation)}"
        for name in modules()
        if name != "app.views.main_window"
        and WINDOW_CLASS in modules()[name].read_text("utf-8")
        for annotation in _annotations(name)
        if re.search(rf"\b{WINDOW_CLASS}\b", ast.unparse(annotation))
    ]
    importers = {
        name
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.ImportFrom)
        and any(alias.name == WINDOW_CLASS for alias in node.names)
    }
    assert importers == {"app.views.app"}, "the program that opens it"
    assert sum(1 for _ in _annotations("app.views.workspace")) > 20 and not wrong, (
        "\n".join(wrong)
    )


def test_features_meet_in_the_workspace() -> None:
    features = sorted(
        (
            name.removesuffix(".feature")
            for name in modules()
            if name.endswith(".feature")
        ),
        key=len,
    )
    features.remove("app.views")
    features = [name for name in features if inside(name, "views")]

    def of(name: str) -> str:
        return next(
            (
                one
                for one in reversed(features)
                if name == one or name.startswith(f"{one}.")
            ),
            "",
        )

    across = [found for found in imports() if of(found.importer) and of(found.target)]
    across = [found for found in across if of(found.importer) != of(found.target)]
    wrong = [
        found
        for found in across
        if not any(inside(found.target, lent) for lent in LENT)
    ]
    assert len(features) > 5 and len(across) >= len(LENT), features
    assert not wrong, told(wrong)
    unused = {
        lent for lent in LENT if not any(inside(found.target, lent) for found in across)
    }
    assert not unused, f"LENT names too many: {unused}"


def test_a_feature_stands_on_the_kernel_alone() -> None:
    """So its folder can be taken away; `python -m scripts.remove_one` shows that it can."""
    ours = [name for name in modules() if inside(name, SHELF)]
    of_features = [found for found in imports() if inside(found.target, SHELF)]
    wrong = [
        found
        for found in of_features
        if not inside(found.importer, _feature(found.target))
        if room(found.importer) != SHELF or role(found.target) != "api"
    ]
    folders = {_feature(name) for name in ours if role(name)}
    assert len(of_features) > len(folders) or not folders, "it looked at nothing"
    assert not wrong, told(wrong)


def _feature(name: str) -> str:
    return ".".join(name.split(".")[1:3])


def test_a_service_is_changed_by_its_own_methods_alone() -> None:
    """Its state is its own; settings alone are properties that are set."""
    attributes = [
        (name, target)
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if not isinstance(target, ast.Name)
    ]
    wrong = [
        f"{name} (line {target.lineno}) sets {ast.unparse(target)}"
        for name, target in attributes
        if re.search(
            r"\b_?(workspace|document|session|control|thread)\.\w+(\.\w+)?$",
            ast.unparse(target),
        )
        and not re.fullmatch(r"self\._?\w+", ast.unparse(target))
        and ".settings." not in ast.unparse(target)
    ]
    assert len(attributes) > 2000 and not wrong, "\n".join(wrong)


def test_torch_load_takes_weights_only() -> None:
    calls = [
        (name, node)
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.Call)
        and _last(node.func) in {"load", "load_state_dict_from_url"}
        if ast.unparse(node.func) in {"torch.load", "load_state_dict_from_url"}
    ]
    wrong = [
        f"{name} (line {node.lineno}): {ast.unparse(node)}"
        for name, node in calls
        if not any(
            word.arg == "weights_only" and ast.unparse(word.value) == "True"
            for word in node.keywords
        )
    ]
    assert len(calls) > 5 and not wrong, "\n".join(wrong)


def test_no_error_is_swallowed_whole() -> None:
    handlers = [
        (name, node)
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.ExceptHandler)
        if node.type is None or _last(node.type) in {"Exception", "BaseException"}
    ]
    wrong = [
        f"{name} (line {node.lineno})"
        for name, node in handlers
        if all(isinstance(line, ast.Pass) for line in node.body)
    ]
    assert len(handlers) > 20 and not wrong, "\n".join(wrong)


# Names that say nothing of what a function does or returns, and phrases that lead nobody to what they mean, with the
# words that do.
DIALECT_NAMES = {
    "told",
    "words",
    "kept",
    "anew",
    "said",
    "looks",
    "heard",
    "hear",
    "let_go",
    "spoken",
    "stand",
}
DIALECT = {
    "anew": "again",
    "by heart": "overfit",
    "made data": "synthetic data",
    "truth value": "bool",
    "what there is": "what it holds, by name",
    "let go of": "released, freed, closed",
    "lets go of": "releases, frees, closes",
}


def test_functions_are_named_by_terms_of_the_field() -> None:
    functions = [
        (name, node)
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    wrong = [
        f"{name} (line {node.lineno}) defines {node.name}"
        for name, node in functions
        if node.name.strip("_") in DIALECT_NAMES
    ]
    assert len(functions) > 5000 and not wrong, (
        "name these after what they do or return:\n" + "\n".join(wrong)
    )


def test_texts_and_docstrings_say_what_an_engineer_searches_for() -> None:
    phrases = re.compile(rf"\b({'|'.join(DIALECT)})\b", re.IGNORECASE)
    texts = [
        (name, node.lineno, node.value)
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert len(texts) > 20_000
    wrong = [
        f"{name} (line {line}) says {match[0]!r}: say {DIALECT[match[0].lower()]}"
        for name, line, text in texts
        if (match := phrases.search(text))
    ]
    wrong += [
        f"{name} (line {node.lineno}) begins with Whether: say Return whether"
        for name in modules()
        if not may_use_qt(name)
        for node in nodes(name)
        if isinstance(node, ast.FunctionDef)
        and (ast.get_docstring(node) or "").startswith("Whether")
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
        ("app.builder.diagram", "app.diagram.diagram", True),
        ("app.builder.plan", "app.diagram.diagram", False),
        ("app.project.project", "app.builder.graph", True),
        ("app.builder.plan", "app.project.project", False),
        ("app.views.canvas.scene", "app.project.document", True),
        ("app.project.document", "app.views.ui.theme", False),
        ("app.views.ui.theme", "app.main", False),
    ],
)
def test_the_table_says_what_it_means(importer: str, target: str, fine: bool) -> None:
    assert allowed(importer, target) is fine


def test_the_reader_sees_lazy_relative_and_dynamic_imports() -> None:
    module = ast.parse(
        "from app.builder import graph\n"
        "from . import config\n"
        "def late():\n    import torch\n    importlib.import_module('app.project.project')\n"
        "if TYPE_CHECKING:\n    from torch import nn\n"
    )
    found = [
        (target, type(node).__name__)
        for node in ast.walk(module)
        for target in TREE.targets(node, "app.data.config")
    ]
    assert sorted(target for target, _ in found) == [
        "app.builder.graph",
        "app.data.config",
        "app.project.project",
        "torch",
        "torch",
    ]


def test_names_that_are_imported_by_name_are_read() -> None:
    computed = ast.parse(
        "from importlib import import_module\nNAMES = 'engine.tasks.shapes x'\nimport_module(NAMES[0])"
    )
    written = ast.parse("NAMES = 'engine.tasks.shapes'\nimport_module('json')")
    assert _imported_by_name([*ast.walk(computed)]) == {"app.engine.tasks.shapes"}
    assert _imported_by_name([*ast.walk(written)]) == set()
    assert "app.training.loop" in _chains(["app.engine.tasks.train"])


def test_the_packages_of_pyproject_are_pinned() -> None:
    """Each has one exact version, and each but torch, whose builds differ by index, the hashes of its files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = {
        _plain(re.split(r"[^\w.-]", need)[0]) for group in groups for need in group
    }
    builds = _pins("constraints-torch.txt")
    hashed = _pins("constraints.txt") | _pins("constraints-docs.txt")
    assert builds.keys() == {"torch", "torchvision"} and len(wanted) > 10
    assert not wanted - builds.keys() - hashed.keys()
    assert [name for name, hashes in hashed.items() if not hashes] == []


def _pins(name: str) -> dict[str, list[str]]:
    """Return the hashes of each package that a file pins."""
    pins: dict[str, list[str]] = {}
    for line in (ROOT / name).read_text("utf-8").splitlines():
        if "==" in line and not line.startswith("#"):
            hashes = pins.setdefault(_plain(line.split("==")[0]), [])
        elif match := re.fullmatch(r"    --hash=(sha256:[0-9a-f]{64})(?: \\)?", line):
            hashes.append(match[1])
    return pins


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def test_rooms_form_no_circle() -> None:
    below: dict[str, set[str]] = {}
    for found in within_app():
        below.setdefault(room(found.target), set())
        below.setdefault(room(found.importer), set()).add(room(found.target))
    assert len(below) > 10 and not circles(below), f"circles of rooms: {circles(below)}"


def test_modules_form_no_circle() -> None:
    """Late imports counted, or a part that cannot be read without its whole would only look like one."""
    below = arrows([found for found in imports() if not found.typing], modules())
    below |= arrows(
        [found for found in WATCHING.imports if not found.typing], WATCHING.modules
    )
    assert sum(map(len, below.values())) > 3000
    assert circles(below) == []


def test_types_close_a_circle_only_where_a_part_is_made_with_its_whole() -> None:
    names = [*modules(), *WATCHING.modules]
    every = [*imports(), *WATCHING.imports]
    typed = [found for found in every if found.typing]
    wholes = {
        name
        for tree in (TREE, WATCHING)
        for name in tree.modules
        if WHOLE in tree.text(name)
    }
    assert len(typed) > 500 and wholes
    left = [found for found in every if not (found.typing and found.target in wholes)]
    assert circles(arrows(left, names)) == []
    closed = {name for circle in circles(arrows(every, names)) for name in circle}
    assert not wholes - closed, "they close no circle any more"


def test_mypy_reads_all_of_the_program() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "tool"
    ]["mypy"]
    assert settings["files"] == ["app", "tapedeck"] and "exclude" not in settings
    followed = [
        rule
        for rule in settings["overrides"]
        if {"follow_imports", "ignore_errors"} & rule.keys()
    ]
    assert not followed, f"these rules keep errors back: {followed}"


def test_each_failure_is_an_error_with_a_code_of_its_own() -> None:
    """Readers tell failures apart by class and code, not by words. The window's own are told by it at once."""
    classes = [
        (name, node)
        for name in modules()
        if not may_use_qt(name)
        for node in nodes(name)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    known = {
        "Exception",
        "ValueError",
        "RuntimeError",
        "OSError",
        "KeyError",
        "TypeError",
        "LookupError",
    }
    found: dict[str, ast.ClassDef] = {}
    before = -1
    while len(found) > before:
        before = len(found)
        for name, node in classes:
            if any(_last(base) in known for base in node.bases):
                found[f"{name}:{node.name}"] = node
                known.add(node.name)
    wrong = [name for name in found if not name.endswith("Error")]
    assert not wrong, f"these are no ...Error: {wrong}"
    coded = {"CodedError"}
    while (
        grown := {
            node.name for node in found.values() if coded & set(map(_last, node.bases))
        }
        - coded
    ):
        coded |= grown
    left = [
        name
        for name, node in found.items()
        if name.split(":")[1] not in coded and not _says_code(node)
    ]
    assert len(found) > 50 and not left, f"without a code: {left}"
    codes = [_code_of(node) for node in found.values()]
    assert len(set(codes)) == len(codes), "two have one code"


def _says_code(node: ast.ClassDef) -> str:
    """The code that an error class says itself: one of an exported script has no base class of ours."""
    for line in node.body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "code":
            return str(ast.literal_eval(line.value))
    return ""


def _code_of(node: ast.ClassDef) -> str:
    """The code of an error class: its name, or what it says instead."""
    if said := _says_code(node):
        return said
    return re.sub(r"(?<!^)(?=[A-Z])", "_", node.name.removesuffix("Error")).lower()
