"""Play the whole backward pass of a live graph and return every step."""

from __future__ import annotations

from app.autograd.playback.kept_graph import LiveGraph
from app.autograd.playback.playback import Playback, StepError
from app.autograd.playback.steps import PassResult


def play_through(graph: LiveGraph, ones: bool = False) -> tuple[PassResult, str]:
    """Play the backward pass; return its steps, and why it ended early, "" if it did not.

    It starts with the graph's seeds; without any at a scalar, or with `ones` from ones. The graph is released
    afterwards. Raises ValueError if there is nothing to start with.
    """
    seeds = (
        [1.0 if end.requires_grad else None for end in graph.ends]
        if ones and graph.seeds is None
        else None
    )
    try:
        playback = Playback(graph, seeds=seeds)
        try:
            playback.run()
            return playback.result(), ""
        except StepError as failed:
            return playback.result(), str(failed)
        finally:
            playback.release()
    finally:
        graph.release()
