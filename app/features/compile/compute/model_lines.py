"""Which module runs a line of a model's code: from one call of it without the compiler, line by line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from app.features.compile.compute.compiler_log import Location, called_module, is_models


class ModelLines:
    """`runs` are the paths of the modules that a line runs in, `calls` of those that it calls."""

    def __init__(self, paths: Mapping[int, str]) -> None:
        self._paths = paths
        self.runs: dict[Location, list[str]] = {}
        self.calls: dict[Location, list[str]] = {}

    def follow(self, call: Callable[[], Any]) -> None:
        """Call the model, and note its lines. Raises what it raises."""
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            call()
        finally:
            sys.settrace(before)

    def innermost(self, frames: Sequence[Location]) -> Location | None:
        """Return the innermost of the frames that is a line of the model."""
        return next(
            (location for location in reversed(frames) if location in self.runs), None
        )

    def calling(self, path: str) -> Location | None:
        """Return the line that calls a module, or what contains it."""
        while path:
            for location, paths in self.calls.items():
                if path in paths:
                    return location
            path = path.rpartition(".")[0]
        return None

    def _entered(self, frame: FrameType, event: str, _argument: Any) -> Any:
        module = called_module(frame)
        if module is not None:
            caller = frame.f_back
            while caller is not None and not is_models(caller.f_code.co_filename):
                if called_module(caller) is not None:
                    return None
                caller = caller.f_back
            if caller is not None and id(module) in self._paths:
                self._note(self.calls, caller, self._paths[id(module)])
            return None
        if not is_models(frame.f_code.co_filename):
            return None
        path = self._path_of(frame)
        self._note(self.runs, frame, path)

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                self._note(self.runs, frame, path)
            return line

        return line

    def _note(
        self, table: dict[Location, list[str]], frame: FrameType, path: str
    ) -> None:
        paths = table.setdefault((frame.f_code.co_filename, frame.f_lineno), [])
        if path not in paths:
            paths.append(path)

    def _path_of(self, frame: FrameType) -> str:
        above: FrameType | None = frame
        while above is not None:
            module = called_module(above)
            if module is not None and id(module) in self._paths:
                return self._paths[id(module)]
            above = above.f_back
        return ""
