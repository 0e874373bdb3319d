"""Shapes, generated source and diagnostics of a graph."""

from __future__ import annotations

import time

from msgspec.structs import replace

from app.builder.blocks import Block
from app.builder.catalog.catalog import Catalog, catalog
from app.builder.codegen.class_args import unknown_inside
from app.builder.codegen.codegen import generate
from app.builder.diagnostics.call_problems import (
    loop_problems,
    net_problems,
    step_problems,
)
from app.builder.diagnostics.checks import structure
from app.builder.diagnostics.context import InferredGraph
from app.builder.diagnostics.problems import Cure, Problem, apply_cure
from app.builder.explain.layers import past_flatten
from app.builder.graph import Graph
from app.builder.plan import Step
from app.builder.results import Analysis, CallFailed, Inside, Ran, known
from app.source.generated import Path
from app.util.lru import LruCache, Same

_CURES_TRIED = 16


def shapes_first(
    graph: Graph,
    ops: Catalog | None = None,
    path: Path = (),
    earlier: Analysis | None = None,
) -> Analysis:
    """Infer the type on every wire and diagnose the calls; source and structural checks are left to `analyse`.

    `earlier` is a previous answer: results that the edit since then cannot have changed are reused from it.
    """
    began = time.perf_counter()
    before = None
    if earlier is not None and earlier.walk is not None:
        before = InferredGraph(
            earlier.graph,
            earlier.walk,
            earlier.results,
            ops or catalog(),
            quiet=earlier.quiet,
        )
    sheet = InferredGraph.network(graph, ops or catalog(), before)
    answer = _answer(sheet, earlier)
    if path:
        inside = _followed(sheet, path)
        answer = replace(
            answer,
            path=path if inside else (),
            inside=_answer(inside) if inside else None,
        )
    return replace(answer, milliseconds=(time.perf_counter() - began) * 1000)


def analyse(
    graph: Graph,
    ops: Catalog | None = None,
    path: Path = (),
    before: Analysis | None = None,
) -> Analysis:
    """Return shapes, source and problems of a graph. Never raises: an error is a problem in the answer.

    `before` is the answer of `shapes_first` for the same graph, if there is one.
    """
    began = time.perf_counter()
    ops = ops or catalog()
    if (
        before is None
        or before.graph is not graph
        or before.walk is None
        or before.walk.catalog is not ops
    ):
        before = shapes_first(graph, ops, path)
    assert before.walk is not None
    answer = replace(
        before, source=generate(before.walk, before.results, graph), partial=False
    )
    if answer.runnable:  # errors that stop a network are listed before its warnings
        sheet = InferredGraph(graph, before.walk, before.results, ops)
        answer = replace(
            answer, problems=(*answer.problems, *structure(answer, ops, sheet.runs))
        )
    if answer.inside:
        inside = replace(
            answer.inside, source=answer.source.within(answer.path), partial=False
        )
        answer = replace(answer, inside=inside)
    return replace(
        answer, milliseconds=before.milliseconds + (time.perf_counter() - began) * 1000
    )


def _followed(sheet: InferredGraph, path: Path) -> InferredGraph | None:
    """Return the findings of the block at a path; with unknown inputs where its shapes are unknown."""
    for node, number in path:
        step = next((step for step in sheet.walk.steps if step.id == node), None)
        block = step.spec.definition if step is not None else None
        if step is None or block is None:
            return None
        turns = sheet.results[node].turns
        inside = turns[min(number, len(turns) - 1)].inside if turns else None
        sheet = InferredGraph.block(
            block, inside or unknown_inside(step, block, sheet.walk), sheet.ops
        )
    return sheet


def _answer(sheet: InferredGraph, earlier: Analysis | None = None) -> Analysis:
    """Build the analysis of a sheet from its shapes and problems; `earlier` is one of a version of it."""
    graph, walk, results = sheet.graph, sheet.walk, sheet.results
    problems = _problems(sheet)
    loud = {problem.node for problem in problems}
    settled = {node for node, result in results.items() if result.outcome is not None}
    return replace(
        known(graph, walk, results, earlier),
        problems=tuple(sorted(problems, key=lambda problem: problem.rank)),
        live=frozenset(step.id for step in walk.steps if step.live),
        assumed=frozenset(
            node
            for node in graph.nodes.keys() - settled
            if graph.nodes[node].op != "output" and not graph.nodes[node].muted
        ),
        quiet=frozenset(results.keys() - loud),
    )


def _problems(sheet: InferredGraph, cured: bool = True) -> list[Problem]:
    """List every problem of a sheet and of the blocks on it."""
    problems = [*loop_problems(sheet.graph, sheet.walk), *net_problems(sheet)]
    for step in sheet.walk.steps:
        if step.id not in sheet.quiet:
            problems += step_problems(step, sheet)
    if cured:
        problems = _with_cures_that_work(problems, sheet)
    reported: _Said = set()
    for step in sheet.walk.steps:
        if step.live and step.spec.definition is not None:
            inner = _inside_problems(step, step.spec.definition, sheet, reported)
            if cured and any(problem.severity == "error" for problem in inner):
                inner[0] = replace(
                    inner[0], cures=(*inner[0].cures, *_around(step, sheet))
                )
            problems += inner
    return problems


def _around(step: Step, sheet: InferredGraph) -> tuple[Cure, ...]:
    """Return what mends a block from outside: a Flatten before it moves behind it, or goes."""
    feeds = [sheet.graph.nodes[edge.source] for edge in sheet.graph.into(step.id)]
    cures = [c for feed in feeds for c in past_flatten(sheet.graph, feed, step.node)]
    tried = [(_failing(cure, step.id, sheet), cure) for cure in cures]
    return tuple(cure for count, cure in tried if count is not None)


_Said = set[tuple[str, str | None, str]]  # block, node in it, message


def _inside_problems(
    step: Step, block: Block, sheet: InferredGraph, reported: _Said
) -> list[Problem]:
    """List the problems in a block, each with the path to it; a problem of several instances is listed once."""
    problems: list[Problem] = []
    visited: list[Inside] = []
    for number, turn in enumerate(sheet.results[step.id].turns):
        if turn.inside is None or any(turn.inside is other for other in visited):
            continue
        visited.append(turn.inside)
        for inner in _block_problems(block, turn.inside, sheet.ops):
            key = (block.name, inner.node, inner.message)
            if key not in reported:
                reported.add(key)
                way = ((step.id, number), *inner.path)
                name = (
                    block.graph.nodes[inner.node].name
                    if inner.node and inner.node in block.graph.nodes
                    else ""
                )
                if inner.path:
                    message = (
                        f"In {step.node.name} › {inner.message.removeprefix('In ')}"
                    )
                else:
                    where = (
                        f"{step.node.name}, {name}"
                        if name not in inner.message
                        else step.node.name
                    )
                    message = f"In {where}: {inner.message}"
                looks = tuple(cure for cure in inner.cures if cure.opens)
                problems.append(
                    replace(
                        inner,
                        node=step.id,
                        port=None,
                        message=message,
                        cures=looks,
                        path=way,
                    )
                )
    return problems


_inner: LruCache[list[Problem]] = LruCache(4096)


def _block_problems(block: Block, inside: Inside, ops: Catalog) -> list[Problem]:
    """List the problems inside a block; cached by inside, so instances and edits that share it repeat no work."""
    return _inner.get_or_compute(
        Same(inside),
        lambda: _problems(InferredGraph.block(block, inside, ops), cured=False),
    )


def _with_cures_that_work(
    problems: list[Problem], sheet: InferredGraph
) -> list[Problem]:
    """Drop cures after which the call still fails, and put those first after which the fewest calls do; those that
    remove a node come last. Only a few errors are tried: each trial infers shapes again.
    """
    tried = 0
    checked = []
    for problem in problems:
        if problem.severity == "error" and problem.node is not None and problem.cures:
            tried += 1
            node, few = problem.node, tried <= _CURES_TRIED
            fails = [
                (0 if c.opens else _failing(c, node, sheet) if few else None, c)
                for c in problem.cures
            ]
            good = [(count, c) for count, c in fails if count is not None]
            good.sort(key=lambda tried: tried[0])
            problem = replace(problem, cures=tuple(c for _, c in good))
        checked.append(problem)
    return checked


def _failing(cure: Cure, node: str, sheet: InferredGraph) -> int | None:
    """Return how many calls fail once the cure is applied; None if that of the node still does."""
    mended = apply_cure(sheet.graph, sheet.ops, cure)
    results = sheet.again(mended)[1]
    result = results.get(node)
    if result is None:
        return None
    if not (
        result.inputs
        if mended.nodes[node].op == "output"
        else isinstance(result.outcome, Ran)
    ):
        return None
    return sum(isinstance(other.outcome, CallFailed) for other in results.values())
