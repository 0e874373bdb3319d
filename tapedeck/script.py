"""Run a script as `python train.py` does, watched: `python tapedeck/script.py FOLDER train.py [args]`, or `-m module`.

With `--captured` after FOLDER it begins once a captured step was requested over the socket.

Run as a file and at its top level, since a frame of ours below those of the script would show in its tracebacks, and
an exception has to end the interpreter by itself, for the exit status and the signals to be those of the script.
"""

import os
import sys


def _prepared():  # type: ignore[no-untyped-def]
    """Remove our options from argv, import the watcher, set the script's sys.path; return a function that runs it."""
    folder, *arguments = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from pathlib import Path

    from tapedeck.watching import prepare

    captured = arguments[0] == "--captured"
    arguments = arguments[captured:]
    if arguments[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv[:] = arguments[1:]
        sys.orig_argv[1:] = arguments
        watch = prepare(Path(folder), arguments[1], captured)
        import runpy

        return watch, None, (runpy._run_module_as_main, (arguments[1],))  # type: ignore[attr-defined]
    path = arguments[0]
    sys.argv[:] = arguments
    sys.orig_argv[1:] = arguments
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    main = type(sys)("__main__")
    full = os.path.abspath(path)
    from importlib.machinery import SourceFileLoader

    main.__dict__.update(
        __file__=full,
        __builtins__=sys.modules["builtins"],
        __cached__=None,
        __annotations__={},
        __package__=None,
        __loader__=SourceFileLoader("__main__", full),
        __spec__=None,
    )
    watch = prepare(Path(folder), os.path.basename(path), captured)
    with open(path, "rb") as file:
        source = file.read()
    return watch, main, (full, source)


if __name__ == "__main__":
    _watch, _main, _what = _prepared()
    _own = sys.modules["__main__"]  # kept alive: this runs in it
    try:
        if _main is None:
            _what[0](*_what[1])
        else:
            sys.modules["__main__"] = _main
            exec(compile(_what[1], _what[0], "exec", dont_inherit=True), _main.__dict__)
    except BaseException as _error:
        (_watch.exiting if isinstance(_error, SystemExit) else _watch.failed)(_error)
        if _error.__traceback__ is not None:
            _error.__traceback__ = _error.__traceback__.tb_next
        raise
