"""Buffers of an imported net that its code does not initialise; a project with random weights starts from them."""

from __future__ import annotations

from app.builder.diagnostics.problems import Cure, Problem, SetTraining
from app.project.project import Project
from app.source.generated import Source
from app.training.config import StartWeights
from app.training.setup.weights_header import StartError, header


def random_start(project: Project) -> StartWeights | None:
    """Return the start of a project with random weights: the buffers of its source model that its code does not
    initialise, None if there are none."""
    origin = project.origin
    if origin is None or origin.weights is None or not origin.buffers:
        return None
    return StartWeights(
        origin.weights.path,
        origin.weights.sha256,
        origin.buffers,
        f"{origin.model} (buffers)",
    )


def lost_buffers(project: Project, source: Source) -> tuple[Problem, ...]:
    """Warn if a run would start with other buffers than the source model of an imported net."""
    origin, start = project.origin, project.training.start
    if origin is None or not origin.buffers:
        return ()
    try:
        start_keys = header(start).keys() if start is not None else frozenset()
    except StartError:  # reported by `problems`
        return ()
    lost = [
        key for key in origin.buffers if key not in start_keys and node_of(key, source)
    ]
    if not lost:
        return ()
    several, start_weights = (
        len(lost) > 1,
        random_start(project) if start is None else None,
    )
    subject = (
        f"{len(lost):,} buffers differ from those"
        if several
        else f"{lost[0]} differs from that"
    )
    message = f"{subject} of {origin.model}"
    named = (
        f"{', '.join(lost[:3])}{' ...' if len(lost) > 3 else ''}: " if several else ""
    )
    reason = (
        f"{named}{'their' if several else 'its'} values are not in the code, and the start weights do not "
        "contain them, so the outputs of the net differ from the model's."
    )
    cures = (
        (
            Cure(
                "Use the buffers of the model",
                (SetTraining("", "start", start_weights),),
            ),
        )
        if start_weights
        else ()
    )
    return (
        Problem(
            "warning",
            node_of(lost[0], source),
            message,
            reason,
            cures=cures,
            code="lost-buffers",
        ),
    )


def node_of(key: str, source: Source) -> str | None:
    """Return the node of the drawing that a key of the state_dict belongs to."""
    nodes_by_path = {
        path: node
        for node, path in source.modules.items()
        if key == path or key.startswith(f"{path}.")
    }
    return nodes_by_path[max(nodes_by_path, key=len)] if nodes_by_path else None
