"""Write an export and prove it: handlers of `app.features.export.values`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app.engine.requests.capture import (
    InitialWeights,
    NewestWeights,
    WeightsChoice,
)
from app.engine.server import Context, handles
from app.engine.tasks.weights import describe_weights, load_chosen
from app.export.layers import write_model
from app.export.text_files import write_text
from app.export.train_script import training_script, write_start
from app.export.weights import save_pt, save_safetensors
from app.export.weights_choice import ExportWeights
from app.features.export.compute.certify import certify_export
from app.features.export.compute.clean_process import Cancelled, Tell
from app.features.export.compute.formats import write_format
from app.features.export.values import (
    Export,
    ExportChoice,
    ExportResult,
    FormatError,
    Kind,
    NameWeights,
    Proofs,
    Prove,
    ToProve,
)
from app.project import drawing_digest
from app.runs.newest import threads_of_newest
from app.training.setup.weights_header import StartError

if TYPE_CHECKING:
    from torch import Tensor

    from app.project.drawing_digest import ImportedNet
    from app.project.project import Project
    from app.source.generated import Source
    from app.training.job import Job


@handles(NameWeights)
def name_weights(request: NameWeights, _context: Context) -> str:
    """Describe the weights that an export would take. Raises OSError."""
    try:
        return describe_weights(
            request.weights, request.source, request.seed, request.start
        )
    except StartError as error:
        return f"cannot be written: {error}"


@handles(Export)
def export(request: Export, context: Context) -> ExportResult:
    """Write the files of an export. Raises OSError, WeightsError, StartError."""
    done, rest = write_export(
        request.choice, request.job, request.project, request.weights
    )
    if rest is None or context.cancelled():
        return done
    return ExportResult(
        done.folder, done.names, done.weights, ToProve(context.keep(rest), rest.names)
    )


@handles(Prove)
def prove_export(request: Prove, context: Context) -> Proofs:
    """Write further formats and the certificate. Raises ExportCancelledError, OSError, WeightsError."""
    return prove(context.object_of(request.handle), context.progress, context.cancelled)


class Rest(Struct, frozen=True):
    """What to write after the files of a net; a path is None if it was not chosen.

    `model` and `weights` are the files that a certificate covers; without `weights` it takes a copy of `state`.
    """

    source: Source
    state: Mapping[str, Tensor]
    words: str
    seed: int
    pt2: Path | None = None
    onnx: Path | None = None
    model: Path | None = None
    weights: Path | None = None
    imported: ImportedNet | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the files to write."""
        files = [path.name for path in (self.pt2, self.onnx) if path is not None]
        return (*files, "the certificate") if self.model is not None else tuple(files)


def write_export(
    choice: ExportChoice,
    job: Job,
    project: Project,
    weights: WeightsChoice | None = None,
) -> tuple[ExportResult, Rest | None]:
    """Write the chosen files of a project's net, and return the files not written yet.

    Raises OSError, StartError or WeightsError; files written before stay.
    """
    choice.folder.mkdir(parents=True, exist_ok=True)
    code, names, chosen = [], [], None
    if choice.takes_weights:  # first: they cannot be reproduced
        training = job.training
        chosen = load_chosen(
            weights or InitialWeights(), job.source, training.seed, training.start
        )
        for selected, name, save in (
            (choice.safetensors, "weights.safetensors", save_safetensors),
            (choice.pt, "weights.pt", save_pt),
        ):
            if selected:
                save(chosen.state_dict, choice.folder / name)
                names.append(name)
    if choice.code:
        written = write_model(
            job.source,
            choice.folder / f"{job.source.module_name}.py",
            [choice.folder / "train.py"],
        )
        code += [path.name for path in written]
    if choice.script:
        ran = (
            threads_of_newest(Path(weights.folder), job.source)
            if isinstance(weights, NewestWeights)
            else 0
        )
        write_text(choice.folder / "train.py", training_script(job.ran_with(ran)))
        code += [
            "train.py",
            *(path.name for path in write_start(job, choice.folder / "train.py")),
        ]
    done = ExportResult(
        choice.folder, (*code, *names), chosen.words if chosen is not None else ""
    )
    return done, _rest(
        choice, job, chosen, project
    ) if chosen is not None and choice.proves else None


def _rest(
    choice: ExportChoice, job: Job, chosen: ExportWeights, project: Project
) -> Rest:
    """Return the rest of an export, with the weights that were written: a running run's have changed since."""
    folder = choice.folder
    weights = (
        folder / "weights.safetensors"
        if choice.safetensors
        else folder / "weights.pt"
        if choice.pt
        else None
    )
    return Rest(
        job.source,
        chosen.state_dict,
        chosen.words,
        job.training.seed,
        pt2=folder / "model.pt2" if choice.pt2 else None,
        onnx=folder / "model.onnx" if choice.onnx else None,
        model=folder / f"{job.source.module_name}.py" if choice.certify else None,
        weights=weights,
        imported=drawing_digest.imported(project, job.source),
    )


def prove(rest: Rest, tell: Tell, cancelled: Cancelled) -> Proofs:
    """Write and compare the chosen formats. Raises ExportCancelledError, OSError, WeightsError."""
    files: list[tuple[Kind, Path | None]] = [("PT2", rest.pt2), ("ONNX", rest.onnx)]
    written, refused = [], []
    for kind, path in files:
        if path is not None:
            try:
                written.append(
                    write_format(
                        rest.source,
                        rest.state,
                        path,
                        kind,
                        seed=rest.seed,
                        tell=tell,
                        cancelled=cancelled,
                    )
                )
            except FormatError as error:
                refused.append(str(error))
    certificate, where = None, None
    if rest.model is not None:
        certificate, where = certify_export(
            rest.source,
            rest.state,
            rest.model,
            rest.weights,
            about=rest.words,
            seed=rest.seed,
            imported=rest.imported,
            tell=tell,
            cancelled=cancelled,
        )
    return Proofs(certificate, where, tuple(written), tuple(refused))
