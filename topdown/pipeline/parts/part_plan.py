"""Decides, before noise is drawn, which releases are made in parts, where their trees are cut, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from topdown import additions
from topdown.analysis.export_formats import EXPORT_FORMATS
from topdown.config import RunConfig
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree
from topdown.geography.unit_sums import published
from topdown.machine.tasks import Submits, workers_of
from topdown.measurements.journal import BegunRelease, Journal
from topdown.pipeline.parts.cut_points import level_to_cut
from topdown.pipeline.parts.part_job import Folder, Record
from topdown.privacy.mechanism import BUILT_IN_MECHANISMS, MECHANISMS
from topdown.privacy.plan import Plan
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import BUILT_IN, METHODS, method_named
from topdown.release.manifest import Origin
from topdown.release.publication import marks_of
from topdown.wording import shown
from topdown.workload import Query, Schema

LARGEST_WHOLE = 1 << 26
"""A run of several queries with more nodes x cells is made in parts."""

LEAVES_OF_A_PART = 25_000
"""The number of leaves of a part, by default."""

LARGEST_KEPT = 1 << 28
"""The largest number of measured numbers that a release in parts keeps by default: those of the upper levels."""

_LARGER = 4
"""A tree is cut at the highest level at which no subtree has more than this many times the leaves of a part: one part
of this size is acceptable, and a lower cut has more units above it.
"""


@dataclass(frozen=True)
class CutTree:
    """A release in parts whose tree is cut and whose noise may be drawn.

    ``folder`` has its files, ``record`` describes it. ``origin``: what the manifest states, but for the ledger's record
    of the noise; ``limits``: of answers.
    """

    folder: Folder
    record: Record
    journal: Journal
    begun: BegunRelease
    geography: Geography
    origin: Origin
    limits: AnswerLimits | None = None


def folder_of(directory: Path) -> Folder:
    """The folder of the parts of the release in ``directory``."""
    return Folder(directory.absolute() / "internal" / "parts")


def asked_in_parts(config: RunConfig, nodes: int, part_size: int | None) -> bool:
    """Whether a release of so many nodes is made in parts: because this is asked for, or because tables of nodes x
    cells would be too large.
    """
    large = config.asks_queries and nodes * len(config.input.cells) > LARGEST_WHOLE
    return (part_size is not None or large) and not config.is_study


def require_parts(
    config: RunConfig, plan: Plan, geography: Geography, schema: Schema, executor: Submits | None = None
) -> None:
    """Refuse output that needs measurements which are not kept, and a mechanism or method that the workers of
    ``executor``, or processes, do not have. Raises `ConfigError`.
    """
    require_measurements(config, geography, kept_levels(config, plan, geography, schema))
    _require_known_to_workers(config, plan, executor)


def _require_known_to_workers(config: RunConfig, plan: Plan, executor: Submits | None) -> None:
    """Refuse a mechanism, or a method that the parts need, that was added to topdown and that a worker does not have,
    or has with other functions.
    """
    method = method_named(config.projection.method)
    added: list[tuple[str, str, object]] = []
    if BUILT_IN_MECHANISMS.get(plan.mechanism) != plan.noise:
        added.append(("mechanism", plan.mechanism, plan.noise))
    if config.asks_queries and BUILT_IN.get(method.name) != method:
        added.append(("method", method.name, method))
    if not added:
        return
    with workers_of(executor, 1) as (pool, _):
        known = pool.submit(entries_named, [(what, name) for what, name, _ in added]).result()
    for (what, name, entry), there in zip(added, known, strict=True):
        if there != in_full(entry):
            raise ConfigError(
                f"{what} {shown(name)} was added to topdown, and the workers of a release in parts "
                f"{'do not have it' if there is None else 'have another under this name'}; let an installed package "
                f'add it, as an entry point of the group "topdown.{what}s", or make the release without parts'
            )


def entries_named(names: Sequence[tuple[str, str]]) -> list[str | None]:
    """What this process has under ``names`` of mechanisms and methods, each as `in_full` writes it; None where it has
    nothing.
    """
    found: list[str | None] = []
    for what, name in names:
        registry: Mapping[str, object] = MECHANISMS if what == "mechanism" else METHODS
        if name not in registry:
            additions.load(f"{what}s")
        found.append(in_full(registry[name]) if name in registry else None)
    return found


def in_full(entry: object) -> str:
    """A registry's ``entry`` as text; two processes write the same text if its values and the names of its functions
    are equal.
    """
    if isinstance(entry, partial):
        return f"{in_full(entry.func)}{[in_full(one) for one in entry.args]}{in_full(tuple(entry.keywords.items()))}"
    if is_dataclass(entry) and not isinstance(entry, type):
        return f"{type(entry).__name__}{[in_full(getattr(entry, one.name)) for one in fields(entry)]}"
    if isinstance(entry, tuple):
        return str([in_full(one) for one in entry])
    if callable(entry):
        # The script that began a release is the module __mp_main__ in its workers.
        return f"{entry.__module__}.{getattr(entry, '__qualname__', '')}".replace("__mp_main__", "__main__")
    return repr(entry)


def kept_levels(config: RunConfig, plan: Plan, geography: Geography, schema: Schema) -> int:
    """The number of levels, root first, whose measurements a release in parts keeps."""
    numbers = np.cumsum(measured_numbers(plan, geography, schema))
    if config.output.all_measurements or not config.asks_queries:
        return len(numbers)
    first = int(np.argmax(numbers > 0))
    return max(first + 1, int(np.searchsorted(numbers, LARGEST_KEPT, side="right")))


def require_measurements(config: RunConfig, geography: Geography, kept: int) -> None:
    """Refuse output that is made of measurements which a release in parts does not keep; ``kept``: the number of levels
    of its ``geography`` that are kept. Raises `ConfigError`.
    """
    output, levels = config.output, geography.levels
    if kept == len(levels):
        return
    without = {*published(geography).levels} - {*published(geography.top(levels[kept - 1])).levels}
    chosen = output.margins.get("levels", []) if isinstance(output.margins, dict) else []
    wanted = {
        "output.estimates asks for estimates, which are made of them": bool(output.estimates),
        "output.replicates asks for tables, which are made of them": bool(output.replicates),
        "output.exports asks for them": any(
            EXPORT_FORMATS[name].of_measurements for name in output.forms if name in EXPORT_FORMATS
        ),
        "output.margins chooses margins of error, which are made of them": bool(set(chosen) & without),
    }
    reason = next((said for said, holds in wanted.items() if holds), None)
    if reason is not None:
        raise ConfigError(
            f"this release in parts does not keep the measurements of {', '.join(map(shown, levels[kept:]))}, and "
            f"{reason}; set output.all_measurements = true, or leave that out"
        )


def measured_numbers(plan: Plan, geography: Geography, schema: Schema) -> list[int]:
    """The number of values that ``plan`` measures, or publishes exactly, at every level."""
    nodes = np.diff(geography.level_offsets).tolist()
    answers = [sum(Query.parse(name, schema).n_answers for name in plan.queries(level)) for level in geography.levels]
    return [units * each for units, each in zip(nodes, answers, strict=True)]


def cut_for(tree: Tree, leaves: int, plan: Plan) -> tuple[int, int]:
    """The number of the level where a tree is cut into parts of so many ``leaves``, and ``leaves``. Noise within bounds
    depends on all counts of its stream; the whole tree below the root is then one part.
    """
    return (1, tree.n_leaves) if plan.bounds.any else (level_to_cut(tree, _LARGER * leaves), leaves)


def where_to_cut(
    tree: Tree, plan: Plan, begun: BegunRelease | None, leaves: int | None, *, asked: bool = False
) -> tuple[int, int] | None:
    """The number of the level where the tree is cut, and the number of leaves of a part: as it was measured before, or
    with so many ``leaves``; None where it is not cut.

    ``asked``: whether parts were asked for. Raises `ConfigError` where they were, and the whole tree was measured at
    once before.
    """
    if begun is not None and begun.cut is not None:
        return begun.cut
    if leaves is None or (begun is not None and begun.measured is not None and not asked):
        return None
    if begun is not None and begun.measured is not None:
        raise ConfigError(
            "this release was measured of the whole tree at once; run it again so, without --part-size: parts cannot "
            "make sure that they measure the same"
        )
    return cut_for(tree, leaves, plan)


def renewed(record: Record, config: RunConfig, geography: Geography) -> Record:
    """``record`` with the settings that a continued run may change: what is written, and how it is checked."""
    output, solver = config.output, config.projection.solver if config.projection.cross_check else None
    keeps = kept_levels(config, record.its_plan, geography, record.its_schema)
    require_measurements(config, geography, keeps)
    return replace(record, tables=tuple(output.tables), csv=output.csv, solver=solver, keeps=keeps)


def record_of(
    config: RunConfig,
    geography: Geography,
    cells: Sequence[str],
    attributes: Schema | None,
    plan: Plan,
    name: tuple[str, str],
    cut: tuple[int, int],
) -> Record:
    """The record of a release that is called ``name``, by its configuration and its input; ``attributes``: the schema
    whose product the ``cells`` are, None where they are one attribute."""
    schema = Schema.of_cells(cells) if attributes is None else attributes
    return Record.of(
        geography,
        plan,
        name,
        cut,
        schema=schema.to_mappings(),
        method=config.projection.method,
        tables=tuple(config.output.tables),
        csv=config.output.csv,
        solver=config.projection.solver if config.projection.cross_check else None,
        marks=marks_of(fit_for_release=True),
        upward=config.projection.upward,
        order=config.projection.order,
        keeps=kept_levels(config, plan, geography, schema),
        weights=config.projection.weights,
        limited=config.bounds is not None,
        cells=tuple(cells),
        attributed=attributes is not None,
        at_once=not config.asks_queries,
    )
