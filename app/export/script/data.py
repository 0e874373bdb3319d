"""How an exported script reads and splits its data, and what it makes of a batch, as `app.data.loaders` does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pprint import pformat
from typing import Any

from app.data.config import DataConfig
from app.data.downloads.archives import COLLECTIONS
from app.data.known_sources import DIGITS
from app.data.own_files import dataset_class
from app.data.sources import look, options_of
from app.data.spec import CLASSES, TOKENS, VALUES, SourceSpec
from app.data.transform_list import alone, is_random
from app.data.transform_list import calls as transform_calls
from app.export.script.multi_output import several
from app.export.script.steps import Terms
from app.export.script.text import quoted
from app.training.job import Job
from app.training.registry import CLASS_IDS, LOSSES
from app.util import atomic

_READ = """\
    try:
        data = load_data(args.data)
    except Exception as error:  # a damaged file raises what its reader pleases
        ours = isinstance(error, ValueError) and "pickle" not in str(error)
        raise SystemExit(f"{args.data} cannot be read: {error if ours else type(error).__name__}.") from None
"""


@dataclass
class Reading:
    """How the samples come in: `call` is an expression that gives inputs and labels of all samples.

    For data that their authors split it gives those to learn from, and `held_out` the others. `missing` are lines for
    files that are not there, `functions` are carried word for word, `imports` are those of the standard library, and
    `needs` is said in words. `folder` is where the data are, "" for those that are nowhere; `left_out` are lines on
    `bad`, what cannot be read, where the call gives that too.
    """

    call: str
    functions: tuple[Callable[..., Any], ...]
    needs: str = "torch"
    imports: tuple[str, ...] = ()
    folder: str = ""
    missing: tuple[str, ...] = ()
    held_out: str = ""
    constants: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    torch_imports: tuple[str, ...] = ()


def data_parts(job: Job, spec: SourceSpec) -> dict[str, str]:
    """The parts of the script's text that differ between data."""
    from app.data import readers, splits, transforms

    data, options = job.data, options_of(job.data)
    reading = _file(spec, job) if spec.picks else _READINGS[spec.key](options, job)
    functions = list(reading.functions)
    if in_order(spec):
        functions.append(splits.split_in_order)
    elif not spec.own_split or data.test_fraction:
        functions.append(splits.stratified_split)
    if spec.as_bytes:
        functions.append(readers.as_floats)
    if is_random(data.train_transforms):
        functions.append(transforms.augmented)
        reading.imports = (*reading.imports, "from collections.abc import Sequence", "from typing import Any")
    if options.get("standardise"):
        functions.append(splits.standardised)
    if data.class_weights:
        functions.append(splits.balanced_weights)
    load = _authors_lines(data, reading) if spec.own_split else _split_lines(spec, options, reading)
    option = 'parser.add_argument("--data", type=Path, default=Path(DATA), help="where the data are")'
    return {
        "needs": _needs(reading.needs, "torchvision" if job.data.train_transforms or job.data.eval_transforms else ""),
        "imports": "".join(f"{line}\n" for line in ("from pathlib import Path", *reading.imports)),
        "constants": "\n".join(_constants(data, spec, reading)),
        "readers": "\n\n".join(inspect.getsource(function) for function in functions).rstrip(),
        "load": "\n".join(f"    {line}" for line in load),
        "load_arguments": "path: Path" if reading.folder else "",
        "read_data": _READ if reading.folder else "",
        "data_read": "data" if reading.folder else "load_data()",
        "data_option": f"\n    {option}" if reading.folder else "",
        "data_words": _words(spec),
    }


def _needs(words: str, more: str) -> str:
    """What the script needs, in words, and what its transforms need."""
    return words if more in words else f"{words.replace(' and ', ', ')} and {more}"


def _constants(data: DataConfig, spec: SourceSpec, reading: Reading) -> list[str]:
    lines = [f"DATA = {quoted(reading.folder)}"] if reading.folder else []
    if not spec.own_split:
        lines.append(f"VALIDATION_FRACTION = {data.validation_fraction!r}")
    if not spec.own_split or data.test_fraction:
        lines.append(f"TEST_FRACTION = {data.test_fraction!r}")
        lines += [f"SPLIT_SEED = {data.split_seed!r}"] if not in_order(spec) else []
    for name, chosen in (("TRAINING", data.train_transforms), ("EVALUATION", data.eval_transforms)):
        if chosen:
            calls = [f"        {call}," for call in transform_calls(chosen)]
            lines.append("\n".join([f"{name} = v2.Compose(", "    [", *calls, "    ]", ")"]))
    return [*lines, *reading.constants]


def in_order(spec: SourceSpec) -> bool:
    """Whether the first samples are learnt from and the last held out."""
    return spec.key == "file.text" or bool(spec.arguments.get("in_order"))


def is_streamed(spec: SourceSpec) -> bool:
    """Whether samples are read when their batch comes."""
    return "pin" in spec.arguments


def _split_lines(spec: SourceSpec, options: Mapping[str, Any], reading: Reading) -> list[str]:
    first = f'labels["{spec.targets[0].name}"]' if spec.targets else "labels"
    ids = first if spec.task == CLASSES else "torch.zeros(len(labels))"
    split = f"stratified_split({ids}, VALIDATION_FRACTION, TEST_FRACTION, SPLIT_SEED)"
    if in_order(spec):
        split = "split_in_order(len(labels), VALIDATION_FRACTION, TEST_FRACTION)"
    lines = [
        *reading.missing,
        f"samples, labels{', bad' if reading.left_out else ''} = {reading.call}",
        *reading.left_out,
        *(["labels = Targets(labels)"] if spec.targets else []),
        f"training, validation, _ = {split}",
    ]
    if options.get("standardise"):
        lines.append("samples = standardised(samples, training)")
    part = "samples.part({})" if is_streamed(spec) else "samples[{}]"
    learnt, seen = part.format("training"), part.format("validation")
    return [*lines, f"return {learnt}, labels[training], {seen}, labels[validation]"]


def _authors_lines(data: DataConfig, reading: Reading) -> list[str]:
    training, held_out = reading.call, reading.held_out
    if not data.test_fraction:
        return [*reading.missing, f"return *{training}, *{held_out}"]
    return [
        *reading.missing,
        f"samples, labels = {held_out}",
        "validation, _, _ = stratified_split(labels, 0.0, TEST_FRACTION, SPLIT_SEED)  # the rest is kept for a test",
        f"return *{training}, samples[validation], labels[validation]",
    ]


def _words(spec: SourceSpec) -> str:
    shape = f"(N, {', '.join(map(str, spec.shape))})"
    labels = "".join(f", {size}" for size in spec.label_shape) or ","
    what = "values to predict" if spec.task == VALUES else "class ids"
    return f"samples {shape} and {what} (N{labels}){'' if spec.task == VALUES else ' int64'}"


def terms(job: Job, spec: SourceSpec) -> Terms:
    """What the lines of a step say of a batch of these data."""
    own = several(job, spec)
    spec = own.chief_spec() if own is not None else spec
    answer, known = ("output", "labels[batch]") if own is None else (own.answer, own.label)
    ids = LOSSES.get(job.training.loss.name) == CLASS_IDS
    target, output = "labels[batch]", "output"
    if own is None and spec.task != VALUES and not ids:
        target = f"F.one_hot(labels[batch], {len(spec.classes)}).float()"
    if own is None and spec.task == TOKENS and ids:
        output = "output.transpose(1, -1)"
    axis = {CLASSES: "1", TOKENS: "-1", VALUES: ""}[spec.task]
    correct = f"({answer}.argmax({axis}) == {known}).sum()" if axis else ""
    stored = "as_floats(samples[batch])" if spec.as_bytes else "samples[batch]"
    inputs = validated = stored
    if job.data.train_transforms:
        inputs = f"TRAINING({stored})"
        if is_random(job.data.train_transforms):
            inputs = f"augmented({stored}, TRAINING, {alone(job.data.train_transforms)!r})"
    if job.data.eval_transforms:
        validated = f"EVALUATION({stored})"
    return Terms(inputs, validated, target=target, output=output, correct=correct, picture=len(spec.shape) == 3,
                 answer=answer, known=known, several=own)  # fmt: skip


def torch_imports(job: Job) -> str:
    """What the transforms want of torchvision, and what a Dataset class wants."""
    lines: list[str] = []
    if job.data.source == dataset_class.KEY:
        lines += _own_dataset(look(job.data), job).torch_imports
    if job.data.train_transforms or job.data.eval_transforms:
        lines.append("from torchvision.transforms import v2")
    return "".join(f"{line}\n" for line in lines)


def accuracy(terms: Terms, spec: SourceSpec) -> dict[str, str]:
    """How the script counts what is right, if there are classes."""
    each = " * labels.shape[1]" if spec.task == TOKENS else ""
    share = each and f"({{}}{each})"
    if not terms.correct:
        return {"counted": "", "nothing": " = 0.0, 0", "accuracy": "None", "share": "", "val_share": "",
                "val_counted": "", "val_nothing": " = 0.0", "val_accuracy": "None"}  # fmt: skip
    return {
        "counted": f"            correct += (portion > 0) * {terms.correct}\n",
        "nothing": ", correct = 0.0, 0, torch.zeros((), dtype=torch.int64, device=device)",
        "accuracy": f"over_all(correct).item() / {share.format('seen') or 'seen'}",
        "share": " ({train_accuracy:.2%})",
        "val_counted": f"\n            correct += {terms.correct}.item()",
        "val_nothing": ", correct = 0.0, 0",
        "val_accuracy": f"correct / {share.format('len(samples)') or 'len(samples)'}",
        "val_share": " ({val_accuracy:.2%})",
    }


# --- The sources


def _call(name: str, *values: Any, **named: Any) -> str:
    """A call as text; what a project says enters it through `repr`, once it has been checked."""
    written = [quoted(value) if isinstance(value, str) else repr(value) for value in values]
    return f"{name}({', '.join([*written, *(f'{key}={value!r}' for key, value in named.items())])})"


def _sklearn(name: str, options: Mapping[str, Any], job: Job) -> Reading:
    from app.data import readers

    return Reading(_call("read_table", name), (readers.read_table,), "torch and scikit-learn")


def _points(name: str, options: Mapping[str, Any], job: Job) -> Reading:
    from app.data import readers

    return Reading(_call("make_points", name, **options), (readers.make_points,), "torch and scikit-learn")


def _digits(options: Mapping[str, Any], job: Job) -> Reading:
    from app.data import readers

    return Reading("read_digits()", (readers.read_digits,), "torch and scikit-learn")


def _fake(options: Mapping[str, Any], job: Job) -> Reading:
    from app.data import readers

    return Reading(_call("make_noise", **options), (readers.make_noise,))


def _missing(name: str, place: str, more: str = "") -> tuple[str, ...]:
    """Lines for a folder without the files, told by one of them; `place` is an expression of `path`."""
    return (
        f"if not ({place}).exists():",
        f'    fetch = f"torchvision.datasets.{name}({{str(path)!r}}, {more}download=True)"',
        f'    raise SystemExit(f"{name} is not in {{path}}. Name its folder with --data, or fetch it: {{fetch}}")',
    )


def _idx(name: str, options: Mapping[str, Any], job: Job) -> Reading:
    from app.data import readers

    raw = f'path / "{name}" / "raw"'
    return Reading(
        f'read_mnist({raw}, "train")', (readers.read_idx, readers.read_mnist), f"torch alone and the files of {name}",
        ("import struct",), job.data_root or "data", _missing(name, raw), f'read_mnist({raw}, "t10k")',
    )  # fmt: skip


def _cifar(name: str, options: Mapping[str, Any], job: Job) -> Reading:
    from app.data import readers

    return Reading(
        f'read_cifar(path, "{name}", train=True)', (readers.read_cifar,),
        f"torch, torchvision and the files of {name}", (), job.data_root or "data",
        _missing(name, f'path / "{COLLECTIONS[f"torchvision.{name}"].folder}"'),
        f'read_cifar(path, "{name}", train=False)',
    )  # fmt: skip


def _svhn(options: Mapping[str, Any], job: Job) -> Reading:
    from app.data import readers

    training, held_out = (f'path / "{part}_32x32.mat"' for part in ("train", "test"))
    return Reading(
        f"read_svhn({training})", (readers.read_svhn,), "torch, scipy and the files of SVHN",
        (), job.data_root or "data", _missing("SVHN", held_out, 'split=\'test\', '), f"read_svhn({held_out})",
    )  # fmt: skip


def _stl10(options: Mapping[str, Any], job: Job) -> Reading:
    from app.data import readers

    folder = 'path / "stl10_binary"'
    return Reading(
        f'read_stl10({folder}, "train")', (readers.read_stl10,), "torch and the files of STL10",
        (), job.data_root or "data", _missing("STL10", folder), f'read_stl10({folder}, "test")',
    )  # fmt: skip


def _file(spec: SourceSpec, job: Job) -> Reading:
    """A person's own file: how it is read was found out when it was read here, and stands at the top of the script."""
    from app.data.own_files import readers as file_readers

    if spec.key == dataset_class.KEY:
        return _own_dataset(spec, job)
    reader, helpers, standard, others = {
        "file.csv": ("read_csv", ("cell_values", "alone"), ("csv", "math"), ("Mapping", "Sequence")),
        "file.tensors": ("read_tensors", ("kind_of", "alone", "tensor_of", "class_ids"), (), ("Mapping", "Sequence")),
        "file.pictures": (
            "read_pictures", ("picture_files", "open_picture", "read_picture"), (), ("Callable", "Sequence"),
        ),
        "file.text": ("read_text", (), (), ()),
    }[spec.key]
    how = pformat(_plain(spec.arguments), width=110, sort_dicts=False)
    first = '{len(bad)} samples of {path} cannot be read, the first: {bad[0]}'
    left_out = ("if bad:", f'    raise SystemExit(f"{first}")')
    if job.data.bad == "skip":
        left_out = ("if bad:", f'    print(f"{first}", file=sys.stderr)')
    imports = [f"import {name}" for name in standard if name != "math"]
    imports += [f"from collections.abc import {', '.join(others)}"] if others else []
    imports += ["from typing import Any"] if {"alone", "open_picture"} & {*helpers} else []
    imports += ["import sys"] if job.data.bad == "skip" else []
    functions = tuple(getattr(file_readers, name) for name in (*helpers, reader))
    if is_streamed(spec):
        from app.data import streams

        reader = "stream_pictures"
        functions = (*functions[:-1], streams.SampleLost, streams.Streamed, streams.stream_pictures)
        imports += ["import copy", "from concurrent.futures import Future, ThreadPoolExecutor",
                    "from collections.abc import Iterable, Iterator", "from typing import Any"]
    words = "{path} is not there. Say with --data where the data are."
    missing = ("if not path.exists():", f'    raise SystemExit(f"{words}")')
    needs = {"file.pictures": "torch and Pillow"}.get(spec.key, "torch")
    return Reading(f"{reader}(path, **HOW)", functions, needs, tuple(imports), job.data.path, missing, "",
                   (f"HOW = {how}",), left_out)  # fmt: skip


def _own_dataset(spec: SourceSpec, job: Job) -> Reading:
    """A Dataset class: its file lies beside the script, see `beside`."""
    from app.data import streams
    from app.data.own_files import readers as files

    name, module = spec.arguments["name"], Path(job.data.path).stem
    words = f"{{len(bad)}} samples of {name} cannot be read, the first: {{bad[0]}}"
    does = f'    print(f"{words}", file=sys.stderr)' if job.data.bad == "skip" else f'    raise SystemExit(f"{words}")'
    imports = ("from collections.abc import Callable, Mapping", "from contextlib import nullcontext",
               "from typing import Any",
               *(("import sys",) if job.data.bad == "skip" else ()))  # fmt: skip
    call = f"read_dataset({name}(), {spec.arguments['workers']!r}, {spec.arguments['timeout']!r})"
    functions: tuple[Any, ...] = (files.kind_of, files.alone, files.targets_of, files.Careful, files.read_dataset)
    if is_streamed(spec):
        functions += (streams.SampleLost, streams.Streamed, streams.InOrder, streams.stream_dataset)
        call = f"{call.replace('read_', 'stream_')[:-1]}, {spec.arguments['pin']!r})"
        imports += ("import copy", "import threading", "from concurrent.futures import Future, ThreadPoolExecutor",
                    "from collections.abc import Iterable, Iterator")  # fmt: skip
    return Reading(
        call, functions,
        f"torch and {module}.py beside it",
        imports, left_out=("if bad:", does),
        torch_imports=(
            "from torch.utils.data import DataLoader, Dataset, IterableDataset", f"from {module} import {name}"
        ),
    )  # fmt: skip


def beside(job: Job, script: Path) -> list[Path]:
    """Write what the data of a script need beside it: the file of a Dataset class. Raises OSError, DataError."""
    if job.data.source != dataset_class.KEY:
        return []
    file = dataset_class.file_of(Path(job.data.path))
    path = script.with_name(file.name)
    if path.resolve() != Path(job.data.path).resolve():
        atomic.write_text(path, file.text)
    return [path]


def _plain(value: Any) -> Any:
    """Frozen maps as dictionaries, which have a `repr` in Python."""
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, Mapping) else value


_READINGS: dict[str, Callable[[Mapping[str, Any], Job], Reading]] = {
    DIGITS: _digits,
    **{f"sklearn.{name}": partial(_sklearn, name) for name in ("iris", "wine", "breast_cancer")},
    **{f"made.{name}": partial(_points, name) for name in ("moons", "circles")},
    "made.fake": _fake,
    **{f"torchvision.{name}": partial(_idx, name) for name in ("MNIST", "FashionMNIST", "KMNIST")},
    **{f"torchvision.{name}": partial(_cifar, name) for name in ("CIFAR10", "CIFAR100")},
    "torchvision.SVHN": _svhn,
    "torchvision.STL10": _stl10,
}
