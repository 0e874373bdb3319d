"""Build an observation of a graph that a file describes, without running it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from app.observe.observation import Call, Flow, Observation, TensorFacts

Scopes = list[
    tuple[str, str]
]  # path and class of the modules around a node, the outermost first
Size = int | str  # a size that a file leaves open has a name or an expression of names
NAMELESS = "?"  # an open size that the file does not name
DEEPEST = 300  # modules within modules
NESTED = 32  # bodies within bodies that are drawn
REMARK = "The graph is drawn as the file describes it; nothing was run."
FEW = 4  # open sizes that a remark names
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


class Structure:
    """Collects operations in the order of the file; tensors are known by their names."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.bodies = 0  # that were named: branches, loops, functions
        self._calls: list[Call] = []
        self._flows: list[Flow] = []
        self._sources: dict[str, tuple[int, int]] = {}
        self._facts: dict[str, TensorFacts] = {}
        self._open: list[int] = []  # module calls, outermost first
        self._times: dict[str, int] = {}
        self._modules: dict[str, str] = {}
        self._is_cut = False  # an operation lies deeper than is drawn

    def names_of_body(
        self, inner: Iterable[str | None], outer: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the values of the whole graph by a body's names for them: those that are `outer`, and a new one for
        each that is `inner`, since two bodies may use the same names."""
        self.bodies += 1
        return {name: f"{name} ({self.bodies})" for name in inner if name} | dict(outer)

    def know(self, tensor: str, facts: TensorFacts) -> None:
        """Note facts about a tensor."""
        self._facts[tensor] = facts

    def add_input(self, name: str, tensor: str) -> None:
        call_id = self._add("input", name, "input", None, outputs=self._known([tensor]))
        self._sources[tensor] = (call_id, 0)

    def add_operation(
        self,
        op: str,
        scopes: Sequence[tuple[str, str]],
        input_tensors: Sequence[str],
        output_tensors: Sequence[str],
        settings: Iterable[str] = (),
        names: Iterable[str] = (),
        trace: str = "",
    ) -> None:
        """Add an operation. `scopes` are paths and classes of the modules around it, outermost first; `names` those of
        the weights among its inputs; `trace` the text of a stack trace."""
        if len(scopes) > DEEPEST:
            scopes, self._is_cut = scopes[:DEEPEST], True
        self._enter(scopes)
        path = scopes[-1][0] if scopes else ""
        file, line = _source_line(trace)
        id = self._add(
            "operation",
            path,
            op,
            self._open[-1] if self._open else None,
            inputs=self._known(input_tensors),
            outputs=self._known(output_tensors),
            settings=tuple(settings),
            parameters=tuple(names),
            file=file,
            line=line,
        )
        for tensor in input_tensors:
            self._flow(tensor, id)
        self._sources.update(
            {tensor: (id, number) for number, tensor in enumerate(output_tensors)}
        )

    def add_output(self, name: str, tensor: str) -> None:
        self._open.clear()
        self._flow(
            tensor,
            self._add("output", name, "output", None, inputs=self._known([tensor])),
        )

    def observation(self, remarks: Iterable[str]) -> Observation:
        """Return the collected structure; inputs and outputs of a module are the tensors that cross its boundary."""
        sizes = {
            size
            for tensor in self._facts.values()
            for size in tensor.shape
            if isinstance(size, str)
        }
        remarks = tuple(remarks)
        if self._is_cut:
            remarks = (
                *remarks,
                f"Only {DEEPEST} modules within one another are drawn; some operations lie deeper.",
            )
        if sizes:
            names = sorted(
                size for size in sizes if size.isidentifier() or size == NAMELESS
            ) or sorted(sizes)
            more = " and others" if len(names) > FEW else ""
            remarks = (
                *remarks,
                f"Open sizes are written as the file names them: {', '.join(names[:FEW])}{more}.",
            )
        return Observation(
            self._name,
            self._with_borders(),
            tuple(self._flows),
            self._modules,
            remarks=remarks,
        )

    def _add(
        self, kind: str, path: str, op: str, parent: int | None, **rest: object
    ) -> int:
        self._calls.append(Call(len(self._calls), kind, path, op, parent, **rest))  # type: ignore[arg-type]
        return len(self._calls) - 1

    def _known(self, tensors: Sequence[str]) -> tuple[TensorFacts, ...]:
        return tuple(self._facts[tensor] for tensor in tensors if tensor in self._facts)

    def _flow(self, tensor: str, target: int) -> None:
        if (source := self._sources.get(tensor)) is not None:
            self._flows.append(Flow(source[0], target, source[1]))

    def _enter(self, scopes: Sequence[tuple[str, str]]) -> None:
        """Close the module calls that are not in `scopes`, and open calls of new ones."""
        same = 0
        while (
            same < min(len(scopes), len(self._open))
            and self._calls[self._open[same]].path == scopes[same][0]
        ):
            same += 1
        del self._open[same:]
        for path, kind in scopes[same:]:
            self._times[path] = self._times.get(path, 0) + 1
            self._modules[path] = kind
            parent = self._open[-1] if self._open else None
            self._open.append(
                self._add("module", path, kind, parent, call=self._times[path])
            )

    def _with_borders(self) -> tuple[Call, ...]:
        """Set inputs and outputs of every module call: the tensors from outside it, and those used outside it."""
        around: list[tuple[int, ...]] = []
        for call in self._calls:
            above = () if call.parent is None else (*around[call.parent], call.parent)
            around.append(above)
        module_inputs: dict[int, dict[tuple[int, int], None]] = {}
        module_outputs: dict[int, dict[tuple[int, int], None]] = {}
        for flow in self._flows:
            tensor = (flow.source, flow.output)
            for module in set(around[flow.target]) - set(around[flow.source]):
                module_inputs.setdefault(module, {})[tensor] = None
            for module in set(around[flow.source]) - set(around[flow.target]):
                module_outputs.setdefault(module, {})[tensor] = None

        def facts(tensors: Iterable[tuple[int, int]]) -> tuple[TensorFacts, ...]:
            candidates = (
                (self._calls[source].outputs, number) for source, number in tensors
            )
            return tuple(
                outputs[number]
                for outputs, number in candidates
                if number < len(outputs)
            )

        return tuple(
            replace(
                call,
                inputs=facts(module_inputs.get(call.id, ())),
                outputs=facts(module_outputs.get(call.id, ())),
            )
            if call.kind == "module"
            else call
            for call in self._calls
        )


def facts(
    shape: Iterable[Size], dtype: str, size: int, requires_grad: bool = False
) -> TensorFacts:
    """Describe a tensor of elements of `size` bytes; with an open size it counts none."""
    sizes = tuple(shape)
    count = size
    for length in sizes:
        count *= length if isinstance(length, int) else 0
    return TensorFacts(sizes, dtype, bytes=count, requires_grad=requires_grad)


def _source_line(trace: str) -> tuple[str, int]:
    """Return the file and the line of the innermost frame of a stack trace that is not torch's own."""
    frames = _PLACE.findall(trace)
    user_frames = [
        frame for frame in frames if "/torch/" not in frame[0].replace("\\", "/")
    ] or frames
    return (user_frames[-1][0], int(user_frames[-1][1])) if user_frames else ("", 0)
