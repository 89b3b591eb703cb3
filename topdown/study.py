"""The study, readable as prose: what a release's projection would do to the noise, simulated against the truth.

Everything it writes compares with the true counts, so it goes to ``internal/`` and is confidential unless the
configuration declares the input public.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from topdown.config import StudyConfig
from topdown.construction import as_strings, as_text, with_rows
from topdown.counts import Counts
from topdown.door import measurable, require_room
from topdown.errors import ConfigError, DataError
from topdown.evaluation.errors_table import ErrorTable
from topdown.evaluation.fairness import GroupMean, size_classes
from topdown.evaluation.noise_comparison import UNBOUNDED, NoiseVariant, errors_by_noise
from topdown.evaluation.one_release import one_release
from topdown.evaluation.rules import FundShare, Rule, Threshold
from topdown.evaluation.simulate import simulate
from topdown.files import make_folder, whole_file
from topdown.geography import Geography
from topdown.privacy.plan import Plan
from topdown.progress import Silent, Stages
from topdown.readers import read_table, require_encodable, table_columns
from topdown.reading import read_input
from topdown.report.geometry import Outlines, read_outlines
from topdown.report.noise_comparison import compare
from topdown.report.page import render
from topdown.report.records import records_frame, records_summary
from topdown.report.residuals import residual_rows
from topdown.report.summary import Groupings, rounded, summarise
from topdown.tables import write_parquet
from topdown.wording import FAILED, column_names, listed, reason, shown, shown_path

STAGES = 4
"""How many stages `study` has, for a progress bar."""

MOST_GROUPS = 60
"""Distinct labels that a grouping may have."""


@dataclass(frozen=True)
class StudyOutcome:
    """What a study left: its directory, the page to open, how many of the replicates were finished.

    ``stopped``: whether an interrupt ended it before all replicates of all kinds of noise were.
    """

    directory: Path
    report: Path
    replicates: int
    wanted: int
    stopped: bool = False


def study(
    config: StudyConfig,
    output: Path | None = None,
    stages: Stages | None = None,
    *,
    workers: int | None = None,
    replicates: int | None = None,
) -> StudyOutcome:
    """Read, simulate and write the study that ``config`` describes to ``output``/internal.

    Leaves errors.parquet (every node, cell and method), rules.parquet (decisions by leaf), densities.parquet (residuals
    of the units that the report shows), records.parquet (one release by every non-negative method, with which the true
    records are compared), report.html and, where the study has variants of the noise,
    errors_by_noise.parquet. ``workers`` and ``replicates`` stand in for the
    configuration's. An interrupt keeps the replicates that are finished.

    Raises `ConfigError` for an output directory that is public, a group or cell that is not there; `DataError` and
    `BudgetError`, also for whatever a release of the same plan would be refused for; all before the first replicate.
    """
    stages = stages or Silent()
    directory = _confidential_directory(config.output_path if output is None else output)
    with stages.stage("reading the table"):
        geography, counts = read_input(config)
        plan = measurable(config.plan(), geography.levels, counts.schema)
        plans = {
            v.name: measurable(config.variant_plan(v), geography.levels, counts.schema) for v in config.study.variant
        }
        for one in (plan, *plans.values()):
            require_room(counts, one)
        groupings = _groupings(config, geography, counts)
        outlines = None if config.geometry_path is None else read_outlines(config.geometry_path, geography)
    rules = _rules(config, counts, groupings)
    wanted = config.study.replicates if replicates is None else replicates
    stages.say(f"read      {geography!r} x {len(counts.cells)} cells ({', '.join(counts.cells)})")
    with stages.stage(f"simulating {wanted:,} replicates of {len(config.study.methods)} methods"):
        try:
            table = simulate(
                counts,
                plan,
                config.study.methods,
                wanted,
                config.study.seed,
                reference=config.study.reference,
                rules=[rule for _, rule in rules],
                workers=config.study.workers if workers is None else workers,
                public_input=config.study.public_input,
                progress=stages.count,
            )
        except KeyboardInterrupt:
            stages.say("stopped   before the first block of replicates was finished: nothing was written")
            raise
    variants = [NoiseVariant(_noise_name(plan), plan, table)]
    if table.replicates == wanted:
        variants += _variants(config, counts, plans, wanted, workers, stages)
    if table.replicates < wanted:
        stages.say(f"stopped   after {table.replicates:,} of {wanted:,} replicates, which are kept")
    with stages.stage("summing up"):
        summary = _summary(config, table, plan, groupings, rules, outlines, wanted)
        if len(variants) > 1:
            comparison = compare(variants, groupings.cell_classes, config.projection.method)
            summary["noise_comparison"] = rounded(comparison)
        releases = one_release(counts, plan, table.methods, config.study.seed)
        records = records_frame(table, releases) if releases else None
        if records is not None:
            summary["unit"] = plan.unit
            summary["records"] = rounded(records_summary(table, records))
    with stages.stage("writing"), _writing(directory):
        report = _write(directory, table, plan, summary, config)
        if records is not None:
            batches = pa.Table.from_pandas(records, preserve_index=False).to_batches()
            write_parquet(directory / _RECORDS, iter(batches), {"notice": table.notice}, private=True)
        if len(variants) > 1:
            write_parquet(directory / _BY_NOISE, errors_by_noise(variants), {"notice": table.notice}, private=True)
    for path in sorted(directory.glob("*")):
        if path.name in _FILES:
            stages.say(f"wrote     {path} ({path.stat().st_size:,} bytes)")
    stages.say(
        f"next      open {report}; {'it is a' if config.study.public_input else 'keep it, it is a'} {table.notice}"
    )
    finished = [variant.table.replicates == wanted for variant in variants]
    stopped = not all(finished) or len(finished) <= len(config.study.variant)
    return StudyOutcome(directory, report, table.replicates, wanted, stopped)


_BY_NOISE = "errors_by_noise.parquet"
_RECORDS = "records.parquet"
_FILES = ("errors.parquet", _BY_NOISE, _RECORDS, "rules.parquet", "densities.parquet", "report.html")


def _noise_name(plan: Plan) -> str:
    return "as released" if plan.bounds.any else UNBOUNDED


def _variants(
    config: StudyConfig,
    counts: Counts,
    plans: Mapping[str, Plan],
    wanted: int,
    workers: int | None,
    stages: Stages,
) -> list[NoiseVariant]:
    """The same study under the other kinds of noise that the configuration names (``plans``), up to an interrupt."""
    found = []
    for variant in config.study.variant:
        plan = plans[variant.name]
        stages.say(f"noise     {variant.name}: epsilon {float(plan.charged_total):.6g}")
        try:
            table = simulate(
                counts,
                plan,
                variant.methods or config.study.methods,
                wanted,
                config.study.seed,
                reference=config.study.reference,
                workers=config.study.workers if workers is None else workers,
                public_input=config.study.public_input,
                progress=stages.count,
            )
        except KeyboardInterrupt:
            stages.say(f"stopped   before any replicate under noise {variant.name}, which is left out")
            break
        found.append(NoiseVariant(variant.name, plan, table))
        if table.replicates < wanted:
            stages.say(f"stopped   after {table.replicates:,} of {wanted:,} replicates under noise {variant.name}")
            break
    return found


def _confidential_directory(output: Path) -> Path:
    """``output``/internal, unless something on the way there is called public."""
    # `realpath` and not `Path.resolve`, which stops at a loop of links.
    if any(part.lower() == "public" for part in Path(os.path.realpath(require_encodable(output))).parts):
        raise ConfigError(
            f"{shown_path(output)}: a study compares with the true counts and is not written under a directory called "
            "public; give another --output"
        )
    return output / "internal"


def _groupings(config: StudyConfig, geography: Geography, counts: Counts) -> Groupings:
    """The size class of every leaf, by its total and by each cell, and its label in each of the groups' columns."""
    leaves = counts.values[geography.tree.leaves]
    edges = config.study.size_classes
    return Groupings(
        total_classes=tuple(size_classes(leaves.sum(axis=1), edges)),
        cell_classes={cell: tuple(size_classes(leaves[:, k], edges)) for k, cell in enumerate(counts.cells)},
        columns=_group_columns(config, geography),
    )


def _group_columns(config: StudyConfig, geography: Geography) -> Mapping[str, tuple[str, ...]]:
    """Of each of ``study.groups`` the label of every leaf, in the geography's order."""
    wanted = config.study.groups
    if not wanted:
        return {}
    options = config.geography
    levels = options.levels or [config.input.geoid or ""]
    known = table_columns(config.input_path)
    for name in wanted:
        if name not in known:
            raise ConfigError(
                f"study.groups names {shown(name)}; {shown_path(config.input_path)} has {column_names(known)}"
            )
    # Where units are named by their path, the identifiers join the levels below the root.
    path = [c for c in levels[1:] if c in known] if options.separator else levels[-1:]
    table = read_table(config.input_path, list(dict.fromkeys([*path, *wanted, *config.input.where])))
    for name, value in config.input.where.items():
        table = with_rows(table, pc.equal(as_text(table[name], f"input.where: column {shown(name)}"), value))
    parts = [as_strings(table[name], f"column {shown(name)}") for name in path]
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, options.separator)
    node = geography.index_of(joined) - geography.tree.leaves.start
    found = {}
    for name in wanted:
        label = as_text(table[name], f"study.groups: column {shown(name)}").to_pylist()
        labels = ["missing"] * geography.n_leaves
        for row, leaf in enumerate(node):
            if leaf >= 0:
                labels[leaf] = label[row] if label[row] is not None else "missing"
        if len(set(labels)) > MOST_GROUPS:
            raise ConfigError(
                f"study.groups: column {shown(name)} has {len(set(labels)):,} distinct values, more than "
                f"{MOST_GROUPS}; give a column of a few classes, such as quartiles"
            )
        found[name] = tuple(labels)
    return found


def _rules(config: StudyConfig, counts: Counts, groupings: Groupings) -> list[tuple[str, Rule]]:
    """The decisions that the study follows, with what the report does with each."""
    fund: list[tuple[str, Rule]] = [("fund", FundShare(config.study.fund))]
    thresholds: list[tuple[str, Rule]] = [
        ("threshold", Threshold(one.cell, one.cutoff, tuple(one.among))) for one in config.study.thresholds
    ]
    means: list[tuple[str, Rule]] = [
        ("mean", GroupMean(cell, name, labels))
        for name, by_cell in groupings.for_counts(counts.cells).items()
        for cell, labels in by_cell.items()
    ]
    for kind, rule in (*fund, *thresholds):
        asked = [rule.cell, *getattr(rule, "among", ())]  # type: ignore[attr-defined]
        for cell in asked:
            if cell is not None and cell not in counts.cells:
                raise ConfigError(f"study.{kind} names cell {shown(cell)}; the cells are {listed(counts.cells)}")
    return [*fund, *thresholds, *means]


def _summary(
    config: StudyConfig,
    table: ErrorTable,
    plan: Plan,
    groupings: Groupings,
    rules: list[tuple[str, Rule]],
    outlines: Outlines | None,
    wanted: int,
) -> dict[str, Any]:
    return summarise(
        table,
        plan,
        title=config.title or config.input_path.name,
        released=config.projection.method,
        groupings=groupings,
        funds=[rule.label for kind, rule in rules if kind == "fund"],
        thresholds=[rule.label for kind, rule in rules if kind == "threshold"],
        outlines=outlines,
        seed=config.study.seed,
        wanted=wanted,
    )


def _write(directory: Path, table: ErrorTable, plan: Plan, summary: dict[str, Any], config: StudyConfig) -> Path:
    report = directory / "report.html"
    marks = {"notice": table.notice, "replicates": str(table.replicates)}
    make_folder(directory, private=True)
    table.write(directory / "errors.parquet")
    write_parquet(directory / "rules.parquet", _batch(table.rules_frame(), table), marks, private=True)
    densities = residual_rows(table, plan, config.projection.method)
    write_parquet(directory / "densities.parquet", _batch(densities, table), marks, private=True)
    with whole_file(report, private=True) as partial:
        partial.write_text(render(summary), encoding="utf-8")
    return report


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """What goes wrong with the files in ``directory`` as a `DataError`."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{shown_path(directory)}: cannot be written: {reason(error, FAILED)}; free the space or correct the path"
        ) from None


def _batch(frame: pd.DataFrame, table: ErrorTable) -> Iterator[pa.RecordBatch]:
    marked = frame.assign(replicates=np.full(len(frame), table.replicates), notice=table.notice)
    yield from pa.Table.from_pandas(marked, preserve_index=False).combine_chunks().to_batches()
