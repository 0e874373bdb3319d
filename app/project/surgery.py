"""Match the layers of a run's net with an edited project, and choose the initialisation of new ones.

Nodes keep their ids when they are edited, moved into a block or renamed, so a layer stays if a node of its id and kind
is there; else if one of its kind and settings takes the same values, or one of its kind has its path.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import TypeVar

from msgspec import Struct

from app.builder.catalog.catalog import OpSpec
from app.builder.graph import Node
from app.builder.plan import Plan
from app.builder.results import Analysis, StepResult
from app.builder.value_types import TensorType
from app.project.project import Project
from app.source.generated import ClassText, Source
from app.training.surgery.values import Surgery, SurgeryError
from app.util.frozen import FrozenMap

# A value: the position of the call that gives it, and which of its outputs.
Value = tuple[int, int]
H = TypeVar("H", bound=Hashable)

# Modules of torch whose output mixes the features of their input; others go along channel by channel.
_MIXING = (
    "Linear",
    "Conv",
    "RNN",
    "LSTM",
    "GRU",
    "Embedding",
    "Attention",
    "Transformer",
    "Fold",
    "Shuffle",
)
_LAST = (
    "Linear",
    "RNN",
    "LSTM",
    "GRU",
    "Embedding",
    "Attention",
    "Transformer",
)  # their features are the last axis
_NORMS = ("Norm",)
_IDEMPOTENT = (
    "nn.ReLU",
    "nn.ReLU6",
    "nn.Hardtanh",
    "F.relu",
    "F.relu6",
    "torch.relu",
    "nn.Identity",
)
_FEATURES = (
    "in_features",
    "in_channels",
    "num_features",
    "num_channels",
    "normalized_shape",
    "input_size",
)
_UNITS = ("out_features", "out_channels", "embedding_dim", "hidden_size", "embed_dim")
# What gives no zero for zero.
_NOT_FROM_ZERO = (
    "sigmoid",
    "softmax",
    "softmin",
    "softplus",
    "exp",
    "cos",
    "logsigmoid",
    "log_softmax",
)
_ADD, _MUL, _CAT = (
    ("operator.add", "torch.add"),
    ("operator.mul", "torch.mul"),
    ("torch.cat", "torch.concat"),
)
_NAMED = 3  # edits that a description names


class _Call(Struct, frozen=True):
    """One call of a net with its blocks and repetitions unfolded: `ids` leads to its node, `path` to its module."""

    ids: tuple[tuple[str, int], ...]
    node: Node
    spec: OpSpec
    path: str
    args: tuple[Value, ...]
    result: StepResult
    resolved: FrozenMap[str, object]

    @property
    def op(self) -> str:
        return self.node.op

    @property
    def holds(self) -> bool:
        """Return whether it is a module, or a free tensor."""
        return bool(self.path)

    @property
    def mixes(self) -> bool:
        """Return whether its output features are not those of its input, one by one."""
        if self.spec.kind != "module":
            return False
        if any(fragment in self.op for fragment in _MIXING) or not self.op.startswith(
            "nn."
        ):
            groups = self.resolved.get("groups", 1)
            return not (
                "Conv" in self.op
                and groups != 1
                and groups == self.resolved.get("in_channels", 0)
            )
        return False

    def size(self, names: Iterable[str]) -> int:
        """Return the first of some parameters that is a number, 0 for none."""
        size = next((self.resolved[name] for name in names if name in self.resolved), 0)
        size = size[-1] if isinstance(size, tuple) and size else size
        return size if isinstance(size, int) else 0

    def feature_count(self) -> int:
        """Return the number of output features, 0 if unknown."""
        twice = 2 if self.resolved.get("bidirectional") else 1
        if count := self.size(_UNITS):
            return count * twice
        shape = self.shape
        return (
            shape[1]
            if self.op == "input" and len(shape) > 1 and isinstance(shape[1], int)
            else 0
        )

    @property
    def shape(self) -> tuple[object, ...]:
        outcome = self.result.outcome
        outputs = getattr(outcome, "outputs", ())
        return (
            outputs[0].shape if outputs and isinstance(outputs[0], TensorType) else ()
        )


def surgery_between(
    before: Project, after: Project, run: Analysis, edited: Analysis
) -> Surgery:
    """Return the surgery that makes the net of a run that of an edited project, both with their analyses.

    Raises SurgeryError for a net with errors, one without anything of the run's, and opened models.
    """
    if before.opened is not None or after.opened is not None:
        raise SurgeryError(
            "The net of an opened model is defined by its own code and cannot be edited during a run."
        )
    for analysis, which in ((run, "net of the run"), (edited, "edited net")):
        if not analysis.runnable:
            message = (
                analysis.errors[0].message
                if analysis.errors
                else "It has not been analysed."
            )
            raise SurgeryError(f"The {which} has errors: {message}")
    old, new = _calls(run), _calls(edited)
    matches = _matches(old, new)
    layers: dict[str, str] = {}
    for other, old_index in sorted(
        (other, position) for position, other in matches.items()
    ):
        if (
            old[old_index].holds
            and new[other].holds
            and not _other_values(old[old_index], new[other])
        ):
            layers.setdefault(new[other].path, old[old_index].path)
    if not layers:
        raise SurgeryError(
            "No layer of the run is in the edited net. Start a new run with it."
        )
    edit = _Edit(old, new, matches)
    return Surgery(
        edited.source,
        tuple((old_path, other) for other, old_path in layers.items()),
        after.training.groups,
        after.training.recompute,
        edit.starts(),
        edit.segments(),
        _description(old, new, matches),
    )


def _calls(analysis: Analysis) -> list[_Call]:
    """Unfold a net into its calls, in the order in which they run."""
    calls: list[_Call] = []
    assert analysis.walk is not None
    source = analysis.source
    _unfold(
        calls, source, analysis.walk, analysis.results, source.root_class, "", (), None
    )
    return calls


def _unfold(
    calls: list[_Call],
    source: Source,
    plan: Plan,
    results: Mapping[str, StepResult],
    class_text: ClassText,
    prefix: str,
    ids: tuple[tuple[str, int], ...],
    block_inputs: Mapping[str, Value] | None,
) -> list[Value | None]:
    """Append the calls of one sheet; `block_inputs` are the inputs of a block. Returns what its outputs take."""
    values: dict[str, list[Value | None]] = {}
    ends: list[Value | None] = []
    for step in plan.steps:
        args = {
            port: tuple(
                source_value
                for ref in refs
                if ref.output < len(values.get(ref.node, ()))
                and (source_value := values[ref.node][ref.output]) is not None
            )
            for port, refs in step.args.items()
        }
        if block_inputs is not None and step.node.op == "input":
            values[step.id] = [block_inputs.get(step.node.name)]
            continue
        if block_inputs is not None and step.node.op == "output":
            ends.append(
                next(
                    (
                        argument
                        for port_values in args.values()
                        for argument in port_values
                    ),
                    None,
                )
            )
            continue
        result = results[step.id]
        owner = step.module if step.module in class_text.modules else step.id
        first = next(iter(step.args), "")
        outs: list[Value | None] = []
        for number in range(step.node.repeat):
            path = (
                prefix + class_text.module(owner, number)
                if owner in class_text.modules
                else ""
            )
            turn = (
                result.turns[min(number, len(result.turns) - 1)]
                if result.turns
                else None
            )
            inner = source.inside(class_text, owner, number)
            here = (*ids, (step.id, number))
            if turn is not None and turn.inside is not None and inner is not None:
                inputs = {
                    port: port_values[0]
                    for port, port_values in args.items()
                    if port_values
                }
                outs = _unfold(
                    calls,
                    source,
                    turn.inside.plan,
                    turn.inside.results,
                    inner,
                    f"{path}.",
                    here,
                    inputs,
                )
            else:
                arguments = tuple(
                    argument for several in args.values() for argument in several
                )
                resolved = turn.resolved if turn is not None else result.resolved
                outcome = turn.outcome if turn is not None else result.outcome
                calls.append(
                    _Call(here, step.node, step.spec, path, arguments, result, resolved)
                )
                count = max(
                    len(getattr(outcome, "outputs", ())), len(step.spec.outputs), 1
                )
                outs = [(len(calls) - 1, output) for output in range(count)]
            if outs and outs[0] is not None and first:
                args[first] = (outs[0],)
        values[step.id] = outs
    return ends


def _matches(old: list[_Call], new: list[_Call]) -> dict[int, int]:
    """Return which call of the edited net is which of the run's, by their positions."""
    matches: dict[int, int] = {}
    _match(matches, old, new, lambda call: (call.op, call.ids))
    _match(matches, old, new, lambda call: (call.op, call.node.name, call.ids[-1]))
    _match_by_arguments(matches, old, new)
    _match(
        matches, old, new, lambda call: (call.op, call.path) if call.path else call.ids
    )
    return matches


def _match(
    matches: dict[int, int],
    old: list[_Call],
    new: list[_Call],
    key: Callable[[_Call], Hashable],
) -> None:
    """Match the calls that are left where one of each net has a key."""
    matched = set(matches.values())
    left = _unique((key(call), at) for at, call in enumerate(old) if at not in matches)
    right = _unique((key(call), at) for at, call in enumerate(new) if at not in matched)
    matches.update((at, right[name]) for name, at in left.items() if name in right)


def _match_by_arguments(
    matches: dict[int, int], old: list[_Call], new: list[_Call]
) -> None:
    """Match the remaining calls by their inputs: the same op with the same settings and matched inputs.

    The nodes of a block get other ids and names when it is expanded.
    """

    def key(call: _Call, counterparts: Mapping[int, int]) -> Hashable:
        args = tuple((counterparts.get(at, -1), output) for at, output in call.args)
        return (
            call.op,
            args,
            tuple(sorted((name, repr(value)) for name, value in call.resolved.items())),
        )

    matched = set(matches.values())
    identity = {at: at for at in range(len(new))}
    right = _unique(
        (key(call, identity), at) for at, call in enumerate(new) if at not in matched
    )
    for at, call in enumerate(old):
        other = (
            right.get(key(call, matches)) if at not in matches and call.args else None
        )
        if other is not None and other not in matched:
            matches[at] = other
            matched.add(other)


def _unique(pairs: Iterable[tuple[H, int]]) -> dict[H, int]:
    """Return a dictionary without the keys that come twice.

    >>> _unique([("a", 1), ("b", 2), ("a", 3)])
    {'b': 2}
    """
    unique: dict[H, int] = {}
    twice: set[H] = set()
    for key, value in pairs:
        if key in unique:
            twice.add(key)
        unique[key] = value
    return {key: value for key, value in unique.items() if key not in twice}


def _other_values(old: _Call, new: _Call) -> bool:
    """Return whether a constant was edited, whose new values count."""
    return old.spec.kind == "buffer" and (old.resolved != new.resolved)


class _Edit:
    """Two nets and which calls of them are the same: how new layers begin, and where resized inputs come from."""

    def __init__(
        self, old: list[_Call], new: list[_Call], matches: Mapping[int, int]
    ) -> None:
        self._old, self._new = old, new
        self._matches = matches
        self._back = {other: old_index for old_index, other in matches.items()}
        self._takers: dict[int, set[int]] = {}
        for at, call in enumerate(new):
            for source, _ in call.args:
                self._takers.setdefault(source, set()).add(at)
        self._begun: dict[int, tuple[str, str]] = {}
        self._begin_all()

    # --- How new layers begin

    def starts(self) -> tuple[tuple[str, str, str], ...]:
        """Return path, "identity", "zero" or "plain", and the reason, for every new layer."""
        starts: dict[str, tuple[str, str, str]] = {}
        for at, call in enumerate(self._new):
            if call.holds and at not in self._back and call.path not in starts:
                starts[call.path] = (
                    call.path,
                    *self._begun.get(at, ("plain", "On a new branch.")),
                )
        return tuple(starts.values())

    def _begin_all(self) -> None:
        for at, call in enumerate(self._new):
            if at in self._back:
                before = self._old[self._back[at]]
                for number, value in enumerate(call.args):
                    was = before.args[number] if number < len(before.args) else None
                    self._follow(value, self._replaced(was))

    def _replaced(self, value: Value | None) -> str:
        """Return the name of a layer with weights that was removed before a value, "" for none."""
        while value is not None and value[0] not in self._matches:
            call = self._old[value[0]]
            if call.mixes or any(fragment in call.op for fragment in _NORMS):
                return call.node.name
            value = call.args[0] if call.args else None
        return ""

    def _follow(self, value: Value, replaced: str) -> None:
        """Initialise new layers on the path to a value as the identity, where possible."""
        while value[0] not in self._back and value[0] not in self._begun:
            at, call = value[0], self._new[value[0]]
            self._begun[at] = self._inline(call, replaced)
            if call.op in _ADD and len(call.args) == 2:
                trunk, branch = sorted(call.args, key=self._new_before)
                if not self._zeroed(branch):
                    self._follow(branch, "")
                value = trunk
            elif call.args and call.op not in _CAT:
                value = call.args[0]
            else:
                break

    def _inline(self, call: _Call, replaced: str) -> tuple[str, str]:
        if call.node.inits:
            return "plain", "Initialised according to its settings."
        if replaced:
            return "plain", f"It takes the place of {replaced}."
        if "Dropout" in call.op:
            return "identity", "Identity in eval mode."
        if (
            call.spec.kind == "module"
            and not call.mixes
            and call.spec.category == "act"
        ):
            if (
                call.op in _IDEMPOTENT
                and self._last_kind(call) == call.op.lower().rpartition(".")[2]
            ):
                return "identity", "Applied twice it gives the same as once."
            return (
                "identity",
                "It changes the function: only an activation applied twice does not.",
            )
        return "identity", ""

    def _last_kind(self, call: _Call) -> str:
        """Return the kind of the call before one, in lower case, where new layers begin as the identity between."""
        while call.args:
            value = (
                min(call.args, key=self._new_before)
                if call.op in _ADD
                else call.args[0]
            )
            call = self._new[value[0]]
            if value[0] in self._back or call.op in _IDEMPOTENT:
                break
        return call.op.lower().rpartition(".")[2]

    def _new_before(self, value: Value) -> int:
        """Return the number of new layers with weights on the path to a value."""
        count, visited = 0, set[int]()
        todo = [value[0]]
        while todo:
            at = todo.pop()
            if at in self._back or at in visited:
                continue
            visited.add(at)
            call = self._new[at]
            count += (
                call.mixes
                or call.spec.kind == "parameter"
                or any(fragment in call.op for fragment in _NORMS)
            )
            todo += [source for source, _ in call.args]
        return count

    def _zeroed(self, value: Value) -> bool:
        """Initialise a new branch to output zeros: by its last layer, or the factor it is multiplied with."""
        while value[0] not in self._back and len(self._takers.get(value[0], ())) <= 1:
            at, call = value[0], self._new[value[0]]
            norm = (
                any(fragment in call.op for fragment in _NORMS)
                and call.resolved.get("affine", True) is not False
            )
            if call.holds and (call.mixes or norm or call.spec.kind == "parameter"):
                if (
                    "RNN" in call.op
                    or "LSTM" in call.op
                    or "GRU" in call.op
                    or call.node.inits
                ):
                    return False
                reason = "Last of a new branch: the sum keeps its value."
                self._begun[at] = ("zero", reason)
                return True
            if call.op in _MUL and len(call.args) == 2:
                return any(
                    self._zeroed(argument)
                    for argument in sorted(call.args, key=self._is_free, reverse=True)
                )
            if (
                not call.args
                or any(fragment in call.op.lower() for fragment in _NOT_FROM_ZERO)
                or call.op in _CAT
            ):
                return False
            value = call.args[0]
        return False

    def _is_free(self, value: Value) -> bool:
        return self._new[value[0]].spec.kind == "parameter"

    # --- Where resized inputs come from

    def segments(self) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
        """Return the parts, old and new size, of the input of each layer whose number of features differs."""
        segments: dict[str, tuple[tuple[int, int], ...]] = {}
        for old_index, other in self._matches.items():
            old, new = self._old[old_index], self._new[other]
            was, now = old.size(_FEATURES), new.size(_FEATURES)
            if new.holds and was and now and was != now and old.args and new.args:
                parts = self._parts(old.args[0], new.args[0], was, now)
                if parts is not None:
                    segments.setdefault(new.path, parts)
        return tuple(segments.items())

    def _parts(
        self, old: Value, new: Value, was: int, now: int
    ) -> tuple[tuple[int, int], ...] | None:
        """Return the sizes of the parts, None where nothing is known of them but that they are the same."""
        before = list(_sources(self._old, old, lambda at: self._matches.get(at)))
        after = list(
            _sources(
                self._new,
                new,
                lambda at: at if at in self._back else None,
                self._passes,
            )
        )
        names, others = [key for key, _, _ in before], [key for key, _, _ in after]
        if not all(size for _, size, _ in (*before, *after)):
            return None if names == others else ((was, 0), (0, now))
        parts: list[tuple[int, int]] = []
        matcher = SequenceMatcher(None, names, others, autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if tag == "equal":
                parts += [(before[i1 + n][1], after[j1 + n][1]) for n in range(i2 - i1)]
            else:
                parts += [(size, 0) for _, size, _ in before[i1:i2]] + [
                    (0, size) for _, size, _ in after[j1:j2]
                ]
        total = sum(size for _, size, _ in before)
        if all(last for _, _, last in (*before, *after)) and total and was % total == 0:
            return tuple(parts) * (
                was // total
            )  # features are the last axis: as often as there are places
        return tuple(parts)

    def _passes(self, at: int) -> bool:
        """Return whether a new layer starts as the identity, so that its first units are those of its input."""
        return self._begun.get(at, ("", ""))[0] == "identity"


def _sources(
    calls: list[_Call],
    value: Value,
    counterpart: Callable[[int], int | None],
    passes: Callable[[int], bool] | None = None,
) -> Iterator[tuple[Hashable, int, bool]]:
    """Yield which calls the features of a value come from, in order: key, how many, and whether they are the last axis.

    `counterpart` gives the position in the edited net of a call that stays.
    """
    while True:
        at, call = value[0], calls[value[0]]
        stays = counterpart(at)
        if call.op in _CAT and call.args:
            dim = call.resolved.get("dim", 0)
            for argument in call.args:
                inner = list(_sources(calls, argument, counterpart, passes))
                size = _size_along(calls[argument[0]], argument[1], dim)
                if len(inner) == 1 and size:
                    yield inner[0][0], size, inner[0][2]
                else:
                    yield from inner
            return
        goes_on = (
            call.args and not call.mixes and (len(call.args) == 1 or stays is None)
        )
        if call.args and stays is None and passes is not None and passes(at):
            goes_on = True
        if not goes_on:
            key: Hashable = (
                (stays, value[1]) if stays is not None else (id(calls), at, value[1])
            )
            last = any(fragment in call.op for fragment in _LAST)
            ways = 2 if call.resolved.get("bidirectional") else 1  # concatenated
            for way in range(ways):
                yield (key, way), call.feature_count() // ways, last
            return
        value = call.args[0]


def _size_along(call: _Call, output: int, dim: object) -> int:
    """Return the size of an output along an axis, 0 where it is unknown or grows with the batch."""
    outcome = call.result.outcome
    outputs = getattr(outcome, "outputs", ())
    value = outputs[output] if output < len(outputs) else None
    if (
        not isinstance(value, TensorType)
        or not isinstance(dim, int)
        or not -len(value.shape) <= dim < len(value.shape)
    ):
        return 0
    size = value.shape[dim]
    return size if isinstance(size, int) else 0


def _description(old: list[_Call], new: list[_Call], matches: Mapping[int, int]) -> str:
    """Return the edits in words, such as "conv3 inserted, fc1 widened 64 → 96"; the first few, and how many more."""
    back = set(matches.values())
    edits = [
        f"{call.node.name} inserted" for at, call in enumerate(new) if at not in back
    ]
    edits += [
        f"{call.node.name} removed" for at, call in enumerate(old) if at not in matches
    ]
    for old_index, other in matches.items():
        edits += _edits(old[old_index], new[other])
    edits = list(dict.fromkeys(edits))
    if not edits and any(
        old[position].path != new[other].path for position, other in matches.items()
    ):
        return "Layers moved"
    more = f" and {len(edits) - _NAMED} more" if len(edits) > _NAMED else ""
    return ", ".join(edits[:_NAMED]) + more or "Other settings of the net"


def _edits(old: _Call, new: _Call) -> Iterator[str]:
    """Yield which settings of a node were edited; sizes that follow from others are left out."""
    was, now, name = old.node, new.node, new.node.name
    if was.frozen != now.frozen:
        yield f"{name} {'frozen' if now.frozen else 'unfrozen'}"
    for param in sorted({*was.params, *now.params}):
        before, after = old.resolved.get(param), new.resolved.get(param)
        if before != after and param not in _FEATURES:
            numbers = (
                isinstance(before, int) and isinstance(after, int) and param in _UNITS
            )
            verb = (
                param
                if not numbers
                else "widened"
                if (after or 0) > (before or 0)
                else "narrowed"
            )
            yield f"{name} {verb} {before} → {after}"
