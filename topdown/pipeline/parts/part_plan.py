"""Which releases are made in parts, what of them cannot be, and where their trees are cut: known before a draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from topdown.analysis.export_formats import EXPORT_FORMATS
from topdown.config import RunConfig, StudyConfig
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree
from topdown.geography.unit_sums import published
from topdown.measurements.journal import BegunRelease, Journal
from topdown.pipeline.parts.cut_points import level_to_cut
from topdown.pipeline.parts.part_job import Folder, Record
from topdown.privacy.mechanism import MECHANISMS
from topdown.privacy.plan import Plan
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import BUILT_IN, method_named
from topdown.release.publication import marks_of
from topdown.wording import shown
from topdown.workload import Query, Schema

LARGEST_WHOLE = 1 << 26
"""Nodes times cells of a run of several queries that is made of the whole tree at once, at most."""

LEAVES_OF_A_PART = 25_000
"""How many leaves a part has where nothing is said."""

LARGEST_KEPT = 1 << 28
"""How many measured numbers a release in parts has where nothing is said, at most: those of the upper levels."""

_LARGER = 4
"""A tree is cut where no subtree has more than so many times what a part may hold: one such part does no harm, and a
lower cut has more above it."""


@dataclass(frozen=True)
class CutTree:
    """A release in parts, whose tree is cut and whose noise may be drawn: where, what, and of which units.

    ``units``: the digest of their public list, if any; ``notices``: what a reader has to know first; ``limits``: of
    their answers, and the digest of the table that has them; ``areas``: the digest of the tables that a spine is of.
    """

    folder: Folder
    record: Record
    journal: Journal
    begun: BegunRelease
    geography: Geography
    units: str | None
    notices: tuple[str, ...]
    limits: AnswerLimits | None = None
    limits_digest: str | None = None
    areas: str | None = None


def folder_of(directory: Path) -> Folder:
    """Where the parts of the release in ``directory`` lie."""
    return Folder(directory.absolute() / "internal" / "parts")


def asked_in_parts(config: RunConfig, nodes: int, part_size: int | None) -> bool:
    """Whether a release of so many nodes has to go in parts: asked for, or too large for tables of nodes x cells."""
    large = config.by_family and nodes * len(config.input.cells) > LARGEST_WHOLE
    return (part_size is not None or large) and not isinstance(config, StudyConfig)


def require_parts(config: RunConfig, plan: Plan, geography: Geography, schema: Schema) -> None:
    """Refuse what a release in parts cannot do. Raises `ConfigError`."""
    reason = reason_against_parts(config, plan, geography.levels)
    if reason is not None:
        raise ConfigError(
            f"a release in parts ({LARGEST_WHOLE:,} nodes x cells and more, or --part-size) cannot be made where "
            f"{reason}; leave that out, or make a smaller release without parts"
        )
    require_measurements(config, geography, kept_levels(config, plan, geography, schema))


def reason_against_parts(config: RunConfig, plan: Plan, levels: Sequence[str]) -> str | None:
    """Why a release cannot be made in parts, in words; None where it can."""
    method = method_named(config.projection.method)
    wrong = {
        "the cells alone are measured, and parts are for releases of several queries": not config.asks_queries,
        f"its units have {len(levels)} levels, and a tree is cut between its root and its leaves": len(levels) < 3,
        "its noise is bounded": plan.bounds.any,
        f"its noise by mechanism = {plan.mechanism!r} is not of whole numbers": plan.released_grid_bits > 0,
        # The processes that work on parts load topdown alone, and not what a program added to it.
        f"mechanism = {plan.mechanism!r} was added to topdown": MECHANISMS.get(plan.mechanism) != plan.noise,
        f"method = {method.name!r} was added to topdown": BUILT_IN.get(method.name) != method,
        "output.replicates asks for whole tables": bool(config.output.replicates),
    }
    return next((said for said, holds in wrong.items() if holds), None)


def kept_levels(config: RunConfig, plan: Plan, geography: Geography, schema: Schema) -> int:
    """Of how many levels, root first, a release in parts has what was measured."""
    numbers = np.cumsum(measured_numbers(plan, geography, schema))
    if config.output.all_measurements:
        return len(numbers)
    first = int(np.argmax(numbers > 0))
    return max(first + 1, int(np.searchsorted(numbers, LARGEST_KEPT, side="right")))


def require_measurements(config: RunConfig, geography: Geography, kept: int) -> None:
    """Refuse what is made of measurements, of a release in parts that does not keep them; ``kept``: of how many of the
    levels of its ``geography`` it does. Raises `ConfigError`."""
    output, levels = config.output, geography.levels
    if kept == len(levels):
        return
    without = {*published(geography).levels} - {*published(geography.top(levels[kept - 1])).levels}
    chosen = output.margins.get("levels", []) if isinstance(output.margins, dict) else []
    wanted = {
        "output.estimates asks for estimates, which are made of them": bool(output.estimates),
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
    """How many numbers ``plan`` measures, or publishes exactly, of all units of every level."""
    nodes = np.diff(geography.level_offsets).tolist()
    answers = [sum(Query.parse(name, schema).n_answers for name in plan.queries(level)) for level in geography.levels]
    return [units * each for units, each in zip(nodes, answers, strict=True)]


def cut_for(tree: Tree, leaves: int) -> tuple[int, int]:
    """The number of the level where a tree is cut into parts of so many ``leaves``, and these."""
    return level_to_cut(tree, _LARGER * leaves), leaves


def where_to_cut(
    tree: Tree, begun: BegunRelease | None, leaves: int | None, *, asked: bool = False
) -> tuple[int, int] | None:
    """The number of the level where the tree is cut, and how many leaves a part has: as it was measured before, if it
    was, else with so many ``leaves``; None where it is not cut.

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
    return cut_for(tree, leaves)


def renewed(record: Record, config: RunConfig, geography: Geography) -> Record:
    """``record`` with what a run that goes on may ask anew: what is written, and how it is checked."""
    output, solver = config.output, config.projection.solver if config.projection.cross_check else None
    keeps = kept_levels(config, record.its_plan, geography, record.its_schema)
    require_measurements(config, geography, keeps)
    return replace(record, tables=tuple(output.tables), csv=output.csv, solver=solver, keeps=keeps)


def record_of(
    config: RunConfig, geography: Geography, schema: Schema, plan: Plan, name: tuple[str, str], cut: tuple[int, int]
) -> Record:
    """The record of a release that is called ``name``, by its configuration and its input."""
    return Record.of(
        geography,
        schema,
        plan,
        method=config.projection.method,
        name=name,
        cut=cut,
        tables=config.output.tables,
        csv=config.output.csv,
        solver=config.projection.solver if config.projection.cross_check else None,
        marks=marks_of(fit_for_release=True),
        upward=config.projection.upward,
        order=config.projection.order,
        keeps=kept_levels(config, plan, geography, schema),
        weights=config.projection.weights,
        limited=config.bounds is not None,
    )
