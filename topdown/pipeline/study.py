"""Runs a study: the errors of a release's projection are simulated and compared with the true counts.

All of its output compares with the true counts, so that it is written to ``internal/`` and is confidential unless the
configuration declares the input public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from topdown.confidential.counts import Counts
from topdown.confidential.measure import measurable, require_room
from topdown.config.study_settings import StudyConfig
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.machine.files import file_digest, make_folder, whole_file
from topdown.machine.progress import Silent, Stages
from topdown.pages.leaf_outlines import Outlines, read_outlines
from topdown.pipeline.confidential_folder import confidential_directory, write_marked
from topdown.pipeline.input.group_columns import read_groupings
from topdown.pipeline.input.limit_reading import read_limits, require_kept
from topdown.pipeline.input.reading import read_input
from topdown.pipeline.input.rule_reading import read_fund, read_rules, read_thresholds
from topdown.pipeline.memory_needed import weigh
from topdown.privacy.plan import Plan
from topdown.projection.limits import AnswerLimits
from topdown.studies.census_metrics import census_metrics, conditions_on, impossible_results
from topdown.studies.decisions.expression_rules import Rule
from topdown.studies.decisions.rules import Decision, FundShare, GroupMean, Threshold
from topdown.studies.errors_table import ErrorTable
from topdown.studies.followed import Followed, Reported
from topdown.studies.interval_coverage import CoverageOptions, no_coverage
from topdown.studies.noise_comparison import UNBOUNDED, NoiseVariant, errors_by_noise
from topdown.studies.one_release import one_release, published_example, records_frame
from topdown.studies.report.comparison import BATCHES_FILE, kept
from topdown.studies.report.comparison import FILE as SUMMARY
from topdown.studies.report.groupings import SIZE_CLASS, Groupings, group_means
from topdown.studies.report.page import render
from topdown.studies.report.results import StudyResults
from topdown.studies.report.sections.residuals import residual_rows
from topdown.studies.report.summary import summarise
from topdown.studies.report.words import many
from topdown.studies.simulate import simulate
from topdown.tables.excel import write_sheets
from topdown.tables.tidy import named_failures, write_parquet
from topdown.wording import joined

STAGES = 4
"""The number of stages of `study`, for a progress bar."""


@dataclass(frozen=True)
class StudyOutcome:
    """The result of a study: its directory, the page to open, and the number of finished replicates.

    ``stopped``: whether it was interrupted before all replicates were finished.
    """

    directory: Path
    report: Path
    replicates: int
    wanted: int
    stopped: bool = False


class StudyInput(NamedTuple):
    """What a study is of: the units and true counts, the plan and those of its variants (``plans``), the answers that
    are ``followed``, groups, decisions with the means that they need, and which margins are counted."""

    geography: Geography
    counts: Counts
    plan: Plan
    plans: dict[str, Plan]
    limits: AnswerLimits | None
    queries: list[str] | None
    followed: Followed
    groupings: Groupings
    outlines: Outlines | None
    fund: FundShare
    thresholds: list[Threshold]
    rules: list[Rule]
    means: list[GroupMean]
    coverage: CoverageOptions | None


def read_study(config: StudyConfig, stages: Stages, counts: Counts | None = None) -> StudyInput:
    """All that the study of ``config`` reads and that its sections name, found and put together; ``counts``: of its
    table, where that was read already. Raises as `study`."""
    config.require_released()
    with stages.stage("reading the table"):
        if counts is None:
            _, counts = read_input(config, before_counts=partial(weigh, config, stages))
        geography = counts.geography
        plan = measurable(config.plan(), geography.levels, counts.schema)
        plans = {
            v.name: measurable(config.variant_plan(v), geography.levels, counts.schema) for v in config.study.variant
        }
        for one in (plan, *plans.values()):
            require_room(counts, one)
        limits = read_limits(config, geography, counts.schema)
        if limits is not None:
            require_kept(counts, limits)
        queries = config.studied_queries(counts.schema, plan)
        followed = Followed.of(counts.schema, counts.cells, queries)
        reported = Reported.of(geography)
        units = reported.units
        leaves = reported.at(counts.values.T).T[units.tree.leaves]
        groupings = read_groupings(
            config,
            units,
            followed.labels,
            followed.answers(leaves.T).T,
            None if followed.are_cells else leaves.sum(axis=1),
        )
        outlines = None if config.geometry_path is None else read_outlines(config.geometry_path, units)
    fund, thresholds, rules, means = _decisions(config, units, followed, groupings)
    coverage = _followed_margins(config, geography, followed, groupings, plan)
    _require_metrics(config, followed, coverage)
    stages.say(f"read      {geography!r} x {len(counts.cells)} cells ({joined(counts.cells)})")
    if queries is not None:
        stages.say(f"studies   {many(len(followed.labels), 'answer')} to {', '.join(queries)}")
    return StudyInput(
        geography=geography,
        counts=counts,
        plan=plan,
        plans=plans,
        limits=limits,
        queries=queries,
        followed=followed,
        groupings=groupings,
        outlines=outlines,
        fund=fund,
        thresholds=thresholds,
        rules=rules,
        means=means,
        coverage=coverage,
    )


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
    records are compared), coverage.parquet (how often published intervals hold the truth, where the release has them),
    report.html, summary.json and batches.parquet (its numbers, for `topdown compare`) and, where the study has variants
    of the noise, errors_by_noise.parquet. ``workers`` and ``replicates`` stand in for the configuration's. An interrupt
    keeps the replicates that are finished.

    Raises `ConfigError` for an output directory that is public, a group or cell that is not there; `DataError` and
    `BudgetError`, also for whatever a release of the same plan would be refused for; all before the first replicate.
    """
    stages = stages or Silent()
    directory = confidential_directory(config.output_path if output is None else output)
    given = read_study(config, stages)
    wanted = config.study.replicates if replicates is None else replicates

    def simulated(
        plan: Plan,
        methods: Sequence[str],
        rules: Sequence[Decision] = (),
        coverage: CoverageOptions | None = None,
    ) -> ErrorTable:
        return simulate(
            given.counts,
            plan,
            methods,
            wanted,
            config.study.seed,
            reference=config.study.reference,
            rules=rules,
            workers=config.study.workers if workers is None else workers,
            public_input=config.study.public_input,
            progress=stages.count,
            queries=given.queries,
            limits=given.limits,
            coverage=coverage,
        )

    with stages.stage(f"simulating {wanted:,} replicates of {len(config.methods)} methods"):
        try:
            rules: list[Decision] = [given.fund, *given.thresholds, *given.rules, *given.means]
            table = simulated(given.plan, config.methods, rules, given.coverage)
        except KeyboardInterrupt:
            stages.say("stopped   before the first block of replicates was finished: nothing was written")
            raise
    variants = [NoiseVariant("as released" if given.plan.bounds.any else UNBOUNDED, given.plan, table)]
    if table.replicates == wanted:
        variants += _variants(config, given.plans, wanted, stages, simulated)
    if table.replicates < wanted:
        stages.say(f"stopped   after {table.replicates:,} of {wanted:,} replicates, which are kept")
    with stages.stage("summing up"):
        # Records are of cells.
        seed = config.study.seed
        releases = (
            one_release(given.counts, given.plan, table.methods, seed, given.limits) if given.followed.are_cells else {}
        )
        records = records_frame(table, releases) if releases else None
        published = (
            None
            if given.coverage is None
            else published_example(
                given.counts,
                given.plan,
                config.projection.method,
                seed,
                given.coverage.confidence,
                given.followed,
                given.limits,
            )
        )
        released = releases.get(config.projection.method) if published is None else published.values
        results = StudyResults(
            table,
            given.plan,
            title=config.title or config.input_path.name,
            released=config.projection.method,
            groupings=given.groupings,
            funds=[given.fund.label, *(rule.label for rule in given.rules if rule.kind == "fund")],
            thresholds=[*given.thresholds, *(rule for rule in given.rules if rule.kind == "decision")],
            figures=[rule.label for rule in given.rules if rule.kind == "figure"],
            outlines=given.outlines,
            seed=config.study.seed,
            wanted=wanted,
            variants=variants,
            records=records,
            shaded_above=(config.report.doubtful, config.report.unreliable),
            tolerance=config.study.tolerance,
            published=published,
            census=_census(config, table, released),
        )
        summary = summarise(results)
    with stages.stage("writing"), named_failures(directory):
        report = _write(directory, results, summary)
    for path in sorted(directory.glob("*")):
        if path.name in _FILES:
            stages.say(f"wrote     {path}")  # its size would follow the true counts
    stages.say(
        f"next      open {report}; {'it is a' if config.study.public_input else 'keep it, it is a'} {table.notice}"
    )
    finished = [variant.table.replicates == wanted for variant in variants]
    stopped = not all(finished) or len(finished) <= len(config.study.variant)
    return StudyOutcome(directory, report, table.replicates, wanted, stopped)


_COVERAGE = "coverage.parquet"
_BY_NOISE = "errors_by_noise.parquet"
_RECORDS = "records.parquet"
_CENSUS = "census_metrics.xlsx"
_TABLES = ("errors.parquet", _BY_NOISE, _COVERAGE, _RECORDS, "rules.parquet", "densities.parquet", BATCHES_FILE)
_FILES = (*_TABLES, _CENSUS, SUMMARY, "report.html")


def _variants(
    config: StudyConfig,
    plans: Mapping[str, Plan],
    wanted: int,
    stages: Stages,
    simulated: Callable[[Plan, Sequence[str]], ErrorTable],
) -> list[NoiseVariant]:
    """The same study under the other kinds of noise in the configuration (``plans``), each of ``wanted`` replicates as
    ``simulated`` by some methods, until it is interrupted."""
    found = []
    for variant in config.study.variant:
        plan = plans[variant.name]
        stages.say(f"noise     {variant.name}: epsilon {float(plan.charged_total):.6g}")
        try:
            table = simulated(plan, variant.methods or config.methods)
        except KeyboardInterrupt:
            stages.say(f"stopped   before any replicate under noise {variant.name}, which is left out")
            break
        found.append(NoiseVariant(variant.name, plan, table))
        if table.replicates < wanted:
            stages.say(f"stopped   after {table.replicates:,} of {wanted:,} replicates under noise {variant.name}")
            break
    return found


def _followed_margins(
    config: StudyConfig,
    geography: Geography,
    followed: Followed,
    groupings: Groupings,
    plan: Plan,
) -> CoverageOptions | None:
    """The intervals of the release that ``config`` describes, grouped by the study's size classes and groups.

    None where the noise has a law for which no margins are known.
    """
    if no_coverage(plan, geography, followed.queries[0].schema) is not None:
        return None
    grouped = {name: one for name, one in groupings.items() if name != SIZE_CLASS}
    return CoverageOptions(
        config.projection.method,
        config.output.confidence,
        tuple(config.study.size_classes),
        group_means(grouped, followed.labels, []),
    )


def _census(
    config: StudyConfig, table: ErrorTable, released: IntArray | None
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """The Bureau's metrics of one release, and its impossible results, if they are asked for."""
    if config.study.metrics is None or released is None:
        return None
    compared = table.geography, table.cells, table.truth, released
    return census_metrics(*compared), impossible_results(*compared, config.study.impossible)


def _require_metrics(config: StudyConfig, followed: Followed, coverage: CoverageOptions | None) -> None:
    """Refuse a study for which the metrics of one release cannot be computed. Raises `ConfigError`."""
    if config.study.metrics is None:
        return
    if coverage is None and not followed.are_cells:
        raise ConfigError(
            'study.metrics = "census" needs one release of the answers that are studied, which a study makes with its '
            "margins, and of this noise none are known; leave metrics out"
        )
    conditions_on(followed.labels, config.study.impossible)


def _decisions(
    config: StudyConfig, geography: Geography, followed: Followed, groupings: Groupings
) -> tuple[FundShare, list[Threshold], list[Rule], list[GroupMean]]:
    """The fund, the thresholds and the rules of the study, and the group means that give the simulation error of their
    decisions for leaves.
    """
    fund, thresholds = read_fund(config, followed), read_thresholds(config, geography, followed)
    rules = read_rules(config, geography, followed)
    on_levels: list[Decision] = [fund, *thresholds, *(rule for rule in rules if rule.areas is None)]
    below = [one for one in on_levels if one.nodes(geography.tree) == geography.tree.leaves]
    return fund, thresholds, rules, group_means(groupings, followed.labels, below)


def _write(directory: Path, results: StudyResults, summary: dict[str, Any]) -> Path:
    table, report = results.table, directory / "report.html"
    make_folder(directory, private=True)
    # Of an earlier study nothing stays that this one does not write; the summary is the last file, so that one that was
    # not written whole is no study.
    made = {
        _COVERAGE: table.coverage is not None,
        _RECORDS: results.records is not None,
        _BY_NOISE: len(results.variants) > 1,
        _CENSUS: results.census is not None,
    }
    for name in (SUMMARY, *(name for name, is_made in made.items() if not is_made)):
        (directory / name).unlink(missing_ok=True)
    table.write(directory / "errors.parquet")
    write_marked(directory / "rules.parquet", table.rules_frame(), table.marks)
    write_marked(directory / "densities.parquet", residual_rows(table, results.plan, results.released), table.marks)
    write_marked(directory / BATCHES_FILE, table.batch_means.frame(), table.marks)
    if table.coverage is not None:
        write_marked(directory / _COVERAGE, table.coverage, table.marks)
    if results.census is not None:
        sheets = dict(zip(("metrics", "impossible results"), results.census, strict=True))
        with whole_file(directory / _CENSUS, private=True) as partial:
            write_sheets(partial, {name: frame.assign(notice=table.notice) for name, frame in sheets.items()})
    if results.records is not None:
        batches = pa.Table.from_pandas(results.records, preserve_index=False).to_batches()
        write_parquet(directory / _RECORDS, iter(batches), table.marks, private=True)
    if len(results.variants) > 1:
        write_parquet(directory / _BY_NOISE, errors_by_noise(results.variants), table.marks, private=True)
    with whole_file(report, private=True) as partial:
        partial.write_text(render(summary), encoding="utf-8")
    with whole_file(directory / SUMMARY, private=True) as partial:
        partial.write_text(kept(summary, file_digest(directory / BATCHES_FILE)), encoding="utf-8")
    return report
