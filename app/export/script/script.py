"""`train.py`: the run as a plain PyTorch script beside `model.py`.

Its arithmetic is that of `app.training.loop`, operation for operation, and the functions that read and split the data
are taken over word for word, so the losses of both are equal bit for bit on the CPU. What a project can choose enters
the text through `repr`, after it has been checked.
"""

from __future__ import annotations

import keyword
from dataclasses import replace
from pathlib import Path
from string import Template

from app.data.sources import look
from app.export.script import checkpoints, distributed, metrics, multi_output, steps
from app.export.script import data as script_data
from app.export.script.text import quoted
from app.export.weights import save_pt
from app.training.job import Job, JobError, check_numbers
from app.training.setup.initial_weights import tensors

_SCRIPT = Template('''\
"""Train the net of $module.py on $label.

    python train.py             a line an epoch
    python train.py --json      a JSON line a step and an epoch, losses in full precision
    python train.py --processes 2
                                every batch dealt out to two processes, which share their gradients

Plain PyTorch; it needs $needs. Weights go to trained/weights.pt, or to the folder of --out.
On the CPU, the same seed, the same torch and the same number of threads give the same losses, bit for bit.$more_words
"""

import argparse
import json
import math
$imports
import numpy as np
import torch
from torch import Tensor, distributed, nn
$torch_imports
from $module import $class_name

EPOCHS = $epochs
BATCH_SIZE = $batch_size
SEED = $seed
DEVICE = $device
$processes_constants$run_constants$constants


$readers


def load_data($load_arguments) -> tuple[$held, $labels, $held, $labels]:
    """Training and validation data: $data_words, twice."""
$load


def pick_device(name: str) -> torch.device:
    """The device for a name of torch's; "auto" is the fastest that is present."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda:0")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")$processes$kept_functions


def evaluate(
    model: nn.Module, loss_function: nn.Module, samples: $held, labels: $labels
) -> tuple[float | None, float | None$scores_type]:
    """Mean loss and accuracy in eval mode; None for both if there are no samples."""
    if not len(samples):
        return None, None$scores_none
    model.eval()$scores_begun
    total$val_nothing
    with torch.inference_mode():
        for batch in torch.arange(len(samples), device=samples.device).split(BATCH_SIZE):
$evaluated
            total += loss.item() * len(batch)$val_counted$scores_gathered
    return total / len(samples), $val_accuracy$scores_told


def say(event: str, **fields: object) -> None:
    """Print an event as a JSON line; null stands for a number that is not finite."""
    clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}
    if not RANK:
        print(json.dumps({"event": event, **clean}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the net of $module.py.")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--device", default=DEVICE, help="auto, cpu, cuda:0, mps ...")
    parser.add_argument("--seed", type=int, default=SEED, help="of the weights, the shuffling and the dropout")
    parser.add_argument("--json", action="store_true", help="print a JSON line for every step and epoch")
    parser.add_argument("--out", type=Path, default=Path("trained"), help="folder for the weights")
$process_options$options$kept_options
    args = parser.parse_args()
    if PROCESSES == 1 < args.processes:
        raise SystemExit(launch(args.processes))

    device = pick_device(args.device)
    if PROCESSES > 1:
        device = join(device, args.store)
$read_data    samples, labels, val_samples, val_labels = (tensor.to(device) for tensor in $data_read)

$seeds
    model = $class_name()$put$synced
$made
    if RANK:
        torch.manual_seed(args.seed + RANK)  # for dropout and the like; the order of the samples is that of all
    shuffle = torch.Generator().manual_seed(args.seed)$restored

    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if args.json:
        run = {"device": str(device), "epochs": args.epochs, "batch_size": BATCH_SIZE, "seed": args.seed}
        counts = {"parameters": parameters, "train_count": len(samples), "validation_count": len(val_samples)}
        say("started", **run, **counts$resumed_at)

$before$hands$keeper
    for epoch in range($first, args.epochs + 1):
        model.train()
        total, seen$nothing
$order_kept$order$skipped$ahead
        $numbered
$part$step
$counted
            step, seen = step + 1, seen + len(every)
            value = whole(loss).item()
            if not math.isfinite(value):
                raise SystemExit(f"The loss of step {step} is {value}: make the learning rate smaller.")
            total += value * len(every)
            if args.json:
                say("step", epoch=epoch, step=step, loss=value)$parts$limits$kept_step
$interrupted
        train_loss, train_accuracy = $figures
        val_loss, val_accuracy$scores = evaluate($validated, loss_function, val_samples, val_labels)$end_of_epoch
        if args.json:
            train = {"train_loss": train_loss, "train_accuracy": train_accuracy}
            say("epoch", epoch=epoch, step=step, **train, val_loss=val_loss, val_accuracy=val_accuracy$scores_said)
        elif not RANK:
            validation = "" if val_loss is None else f", validation {val_loss:.4f}$val_share"$scores_shown
            print(f"epoch {epoch}/{args.epochs}: training {train_loss:.4f}$share{validation}")$kept_best
$end_of_run
$kept_last    if not RANK:
        args.out.mkdir(parents=True, exist_ok=True)
        torch.save({name: value.cpu() for name, value in $validated.state_dict().items()}, args.out / "weights.pt")
    if PROCESSES > 1:
        distributed.barrier()  # all are ended when one fails; the weights are written by now
        distributed.destroy_process_group()
    if args.json:
        say("finished", reason=$reason, epoch=epoch, steps=step)
    elif not RANK:
        print(f"The weights are in {args.out / 'weights.pt'}.")


if __name__ == "__main__":
    main()
    if PROCESSES > 1:
        sys.stdout.flush()
        os._exit(0)  # threads of gloo live longer than their group, and may abort an interpreter that shuts down
''')


def start_file(script: Path) -> Path:
    """Where the start weights of a script lie: beside it."""
    return script.with_name(f"{script.stem}_start.pt")


def write_start(job: Job, script: Path) -> list[Path]:
    """Write beside a script what it reads: start weights, and the file of a Dataset class; returns what was written.

    Raises StartError, WeightsError, DataError.
    """
    files = script_data.beside(job, script)
    if job.training.start is None:
        return files
    path = start_file(script)
    save_pt(tensors(job.training.start), path)
    return [path, *files]


def training_script(
    job: Job, model_module_name: str = "model", script: str = "train.py", *, hands: bool = False
) -> str:
    """The text of `train.py` for `job`, whose net is the class of `<model_module_name>.py` beside it.

    `script` is the name that it will have; its start weights are read from a file of that name, see `write_start`.
    With `hands` it pauses, steps and stops when it is told so on its standard input. It takes checkpoints then, and
    where `save_every` asks for them.
    Imports torch (the signatures of the loss and the optimizer are read off it). Raises JobError or ChoiceError.
    """
    check_numbers(job)
    for name in (model_module_name, job.source.class_name):
        if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name):
            raise JobError(f"“{name}” is no name that Python can import.")
    training = job.training
    spec = look(job.data)
    words, option, put = _start_parts(training.start is not None, start_file(Path(script)).name)
    data, terms = script_data.data_parts(job, spec), script_data.terms(job, spec)
    terms = replace(terms, portions=distributed.has_portions(job, terms.several))
    keeps = checkpoints.takes(training, hands)
    kept = checkpoints.parts(training, terms, hands)
    chief = terms.several.chief_spec() if terms.several is not None else spec
    parts = {
        **script_data.accuracy(terms, chief),
        "labels": "Targets" if spec.targets else "Tensor",
        "held": "Streamed" if script_data.is_streamed(spec) else "Tensor",
        "ahead": _ahead(keeps) if script_data.is_streamed(spec) else "",
        "parts": steps.told_parts(training),
        "seeds": steps.seeds(training),
        "made": steps.made(training, multi_output.balance(job, spec), terms.several),
        "before": steps.before(training),
        "order": steps.order(training, job.data.shuffle, job.data.drop_last),
        "numbered": steps.numbered(training, keeps),
        "step": steps.step(training, terms),
        "limits": steps.limits(training),
        "part": distributed.part(job, terms.several, hands),
        "processes": distributed.functions(job, terms.several, hands, keeps),
        "processes_constants": distributed.CONSTANTS,
        "process_options": distributed.OPTIONS,
        "synced": distributed.synced(job),
        **distributed.hands(hands),
        "validated": "average.module" if training.ema is not None else "model",
        "end_of_epoch": _after(steps.end_of_epoch(training, keeps)) + kept.pop("kept_epoch"),
        "end_of_run": steps.end_of_run(training) + "\n" * bool(steps.end_of_run(training)),
        "evaluated": steps.evaluated(training, terms),
        **metrics.parts(training, chief, terms),
        "run_constants": steps.constants(training)
        + multi_output.constants(job)
        + checkpoints.constants(keeps, model_module_name),
        "torch_imports": steps.imports(training, terms.target.startswith("F.") or bool(training.losses))
        + metrics.imports(training)
        + script_data.torch_imports(job),
    }
    parts |= kept
    parts["figures"] = steps.figures(training, parts["accuracy"])
    own = ["import os\nimport random\nimport subprocess\nimport sys\nimport tempfile\nimport time\n"]
    own += [data["imports"], distributed.imports(hands, keeps), steps.typing_imports(training)]
    own += [multi_output.imports(job, spec)]
    data["imports"] = "".join(sorted(_merged("".join(own).splitlines()), key=_by_module))
    data["readers"] += multi_output.helpers(job, spec) + steps.helpers(training) + metrics.helpers(training)
    data["needs"] += ", and torchmetrics" * bool(training.metrics)
    text = _SCRIPT.substitute(
        data,
        **parts,
        more_words=distributed.words(job) + checkpoints.words(training, hands) + words,
        put=put,
        options=data["data_option"] + option,
        module=model_module_name,
        class_name=job.source.class_name,
        label=spec.label,
        epochs=repr(training.epochs),
        batch_size=repr(training.batch_size),
        seed=repr(training.seed),
        device=quoted(training.device),
    )
    # Where it stands in an epoch is a part of a checkpoint.
    if keeps:
        text = text.replace(steps.COUNTED, "step, seen, taken = step + 1, seen + len(every), number")
        text = text.replace(steps.LEFT_OUT, "step, taken = step + 1, number")
    return text


def _ahead(keeps: bool) -> str:
    """The lines that tell samples on the disk which batches are to come."""
    batches = "batches[skipped:]" if keeps else "batches"
    return f"\n        if PROCESSES == 1:\n            samples = samples.ahead({batches})"


def _after(lines: str) -> str:
    """Lines that follow another, if there are some."""
    return f"\n{lines}" if lines else ""


def _merged(lines: list[str]) -> list[str]:
    """Lines of imports, one for each module."""
    names: dict[str, set[str]] = {}
    for line in lines:
        start, _, taken = line.partition(" import ") if line.startswith("from ") else (line, "", "")
        names.setdefault(start, set()).update(filter(None, taken.split(", ")))
    return [f"{start} import {', '.join(sorted(taken))}\n" if taken else f"{start}\n" for start, taken in names.items()]


def _by_module(line: str) -> tuple[bool, str]:
    """Plain imports first, as formatters sort them."""
    return line.startswith("from"), line.lower()


def _start_parts(starts: bool, file: str) -> tuple[str, str, str]:
    """What a script with start weights has more: words, an option for their file, and where they are put in."""
    if not starts:
        return "", "", ".to(device)"
    put = """
    try:
        start = dict(torch.load(args.start, map_location="cpu", weights_only=True))
    except Exception:  # a damaged file raises what its reader pleases
        raise SystemExit(f"{args.start} cannot be read: it is missing, damaged, or no state_dict.") from None
    try:
        model.load_state_dict({**model.state_dict(), **start})  # what is not among them stays as it was drawn
    except (RuntimeError, TypeError) as error:
        raise SystemExit(f"{args.start} has weights of another net: {' '.join(str(error).split())}") from None
    model.to(device)"""
    option = (
        f'parser.add_argument("--start", type=Path, default=Path(__file__).with_name({quoted(file)}),'
        ' help="the weights to start from")'
    )
    words = "\nIt starts from the weights in the file of --start, which lies beside it."
    return words, f"\n    {option}", put
