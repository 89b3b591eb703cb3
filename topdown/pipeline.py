"""The main job, readable as prose: from a table of counts to a consistent, publishable release."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from topdown import __version__
from topdown.config import RunConfig
from topdown.counts import Counts
from topdown.errors import ConfigError, DataError, ProjectionError
from topdown.geography import Geography
from topdown.journal import Journal, file_digest, sync_folder
from topdown.manifest import describe_release, write_json
from topdown.measure import measure
from topdown.measurements import Measurements
from topdown.noise import KeyedSource, SecureSource
from topdown.privacy.plan import Plan
from topdown.progress import Silent, Stages
from topdown.projection.crosscheck import CrossCheck, cross_check
from topdown.projection.estimate import Estimate
from topdown.projection.project import project
from topdown.release import Release, round_counts
from topdown.tables import read_table, tidy_batches, write_csv, write_parquet

STAGES = 7
"""How many stages `run` has, for a progress bar."""


@dataclass(frozen=True)
class Outcome:
    """What a run left: the directory that may be published, and whether it was there already."""

    public: Path
    already_there: bool = False


def read_input(config: RunConfig) -> tuple[Geography, Counts]:
    """The geography and the confidential counts of ``config``'s table.

    Raises `DataError` (`GeographyError`, `CountsError`) with the node, the level, the value and the remedy.
    """
    options = config.geography
    identifiers = _identifier_columns(config)
    names = options.names if isinstance(options.names, str) else None
    extra = list(options.names.values()) if isinstance(options.names, dict) else [names] if names else []
    wanted = dict.fromkeys([*identifiers, *config.input.cells, *extra, *config.input.where])
    table = read_table(config.input_path, None if options.levels else list(wanted))
    table = _filtered(table, config)
    if options.levels is not None:
        geography = Geography.from_table(
            table, options.levels, root=options.root, name=options.names, separator=options.separator
        )
        path = [c for c in options.levels[1:] if c in table.column_names] if options.separator else [identifiers[-1]]
    else:
        geography = Geography.from_geoids(
            table[identifiers[0]],
            options.widths or {},
            root=options.root,
            root_level=options.root_level,
            names=table[names] if names else None,
        )
        path = identifiers
    counts = Counts.from_table(
        table,
        geography,
        geoid=path if len(path) > 1 else path[0],
        cells=config.input.cells,
        separator=options.separator or "/",
    )
    return geography, counts


def _identifier_columns(config: RunConfig) -> list[str]:
    """The columns that identify a row's unit: all the levels', or the one with codes."""
    if config.geography.levels is not None:
        return config.geography.levels
    if config.input.geoid is None:
        raise ConfigError("input.geoid is missing: with widths, name the column that holds the codes")
    return [config.input.geoid]


def _filtered(table: pa.Table, config: RunConfig) -> pa.Table:
    """The rows whose columns have the values of ``input.where``."""
    for name, value in config.input.where.items():
        if name not in table.column_names:
            raise DataError(f"{config.input_path}: no column {name!r}, by which input.where chooses rows")
        table = table.filter(pc.equal(table[name].cast(pa.string()), value))
        if table.num_rows == 0:
            raise DataError(f"{config.input_path}: no row has {name} = {value!r}; correct input.where")
    return table


def check(config: RunConfig, stages: Stages | None = None) -> tuple[Geography, Plan]:
    """Validate ``config``, its data and its plan together; draw nothing and write nothing."""
    stages = stages or Silent()
    plan = config.privacy.plan()
    with stages.stage("reading the table"):
        geography, counts = read_input(config)
        plan = plan.for_levels(geography.levels)
    _say_input(stages, geography, counts.cells)
    stages.say(plan.describe(geography.levels))
    return geography, plan


def run(config: RunConfig, output: Path | None = None, stages: Stages | None = None) -> Outcome:
    """Read, measure, project, round and write the release that ``config`` describes to ``output``/public.

    Noise is drawn once: started again with the same configuration and input, a run goes on from its own measurements.
    The public directory appears complete or not at all. Raises `ConfigError`, `DataError`, `ProjectionError` or
    `BudgetError`; nothing is then left half-written.
    """
    stages = stages or Silent()
    directory = config.output_path if output is None else output
    public = directory / "public"
    geography, plan = check(config, stages)
    journal = Journal(directory / "internal", config.fingerprint(), file_digest(config.input_path))
    with journal.locked():
        measurements, ties = _measurements(config, journal, geography, plan, public, stages)
        if (public / "manifest.json").exists():
            stages.say(f"{public} holds this release already, complete; nothing was drawn or written")
            return Outcome(public, already_there=True)
        with stages.stage("projecting"):
            estimates = {
                "unbiased": project(measurements, "gls"),
                "non_negative": project(
                    measurements, config.projection.method, nonnegative=True, weights=config.projection.weights
                ),
            }
        with stages.stage("solving again by cvxpy"):
            checks = _cross_checks(config, measurements, estimates)
        with stages.stage("rounding"):
            release = round_counts(estimates["non_negative"], source=ties)
        with stages.stage("writing"):
            _write(config, public, measurements, plan, estimates, checks, release)
    _say_output(stages, config, public, checks)
    return Outcome(public)


def _measurements(
    config: RunConfig, journal: Journal, geography: Geography, plan: Plan, public: Path, stages: Stages
) -> tuple[Measurements, KeyedSource]:
    """The measurements that this run drew before, or new ones, kept before anything is derived from them."""
    found = journal.read(geography, plan)
    if found is not None:
        stages.say("going on from the measurements that were drawn before: no noise is drawn, no budget is spent")
        return found
    if public.exists():
        raise ConfigError(
            f"{public} exists, and the record of the noise behind it does not; give another --output directory"
        )
    with stages.stage("drawing noise"):
        _, counts = read_input(config)
        measurements = measure(counts, plan, SecureSource())
        ties = KeyedSource.fresh()
    with stages.stage("keeping the measurements"):
        journal.write(measurements, ties)
    return measurements, ties


def _cross_checks(
    config: RunConfig, measurements: Measurements, estimates: dict[str, Estimate]
) -> dict[str, CrossCheck]:
    """A second solution of every program by cvxpy. Raises `ProjectionError` where they disagree."""
    if not config.projection.cross_check:
        return {}
    checks = {
        name: cross_check(measurements, estimate, solver=config.projection.solver)
        for name, estimate in estimates.items()
    }
    for name, found in checks.items():
        if not found.agrees:
            raise ProjectionError(
                f"{name}: the tree engine and cvxpy with {found.solver} differ by {found.largest_difference:.3g} on "
                f"{found.scope}, more than {found.tolerance:.3g}; nothing was released. Try another projection.solver"
            )
    return checks


def _write(
    config: RunConfig,
    public: Path,
    measurements: Measurements,
    plan: Plan,
    estimates: dict[str, Estimate],
    checks: dict[str, CrossCheck],
    release: Release,
) -> None:
    """All of the public files into a folder beside ``public``, which takes its name when they are complete."""
    staging = public.with_name(".public.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        marks = {"software": f"topdown {__version__}", "fit for release": str(release.fit_for_release)}
        tables: dict[str, Iterator[pa.RecordBatch]] = {
            "measurements": measurements.batches(),
            "estimates": _estimate_batches(estimates),
            "release": release.batches(),
        }
        files = {f"{name}.parquet": staging / f"{name}.parquet" for name in tables}
        for name, batches in tables.items():
            write_parquet(files[f"{name}.parquet"], batches, marks)
        if config.output.csv:
            files["release.csv"] = staging / "release.csv"
            write_csv(files["release.csv"], release.batches())
        manifest = describe_release(config, measurements, plan, estimates, checks, release, files)
        write_json(staging / "manifest.json", manifest)
        sync_folder(staging)
        staging.rename(public)
        sync_folder(public.parent)
    except OSError as error:
        raise DataError(
            f"{public}: cannot be written: {error}; free the space or correct the path, and run again: no "
            "noise will be drawn again"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _estimate_batches(estimates: dict[str, Estimate]) -> Iterator[pa.RecordBatch]:
    """Unbiased estimates with their variances beside the non-negative ones, never one without the other."""
    unbiased, non_negative = estimates["unbiased"], estimates["non_negative"]
    columns: dict[str, Any] = {
        "unbiased": unbiased.values,
        "variance": unbiased.variance,
        "non_negative": non_negative.values,
    }
    return tidy_batches(unbiased.geography, unbiased.cells, columns, names=True)


def _say_input(stages: Stages, geography: Geography, cells: tuple[str, ...]) -> None:
    sizes = ", ".join(
        f"{geography.level_slice(level).stop - geography.level_slice(level).start:,} {level}"
        for level in geography.levels
    )
    stages.say(f"read      {geography.n_nodes:,} nodes ({sizes}) x {len(cells)} cells ({', '.join(cells)})")


def _say_output(stages: Stages, config: RunConfig, public: Path, checks: dict[str, CrossCheck]) -> None:
    for name, found in checks.items():
        stages.say(
            f"checked   {name.replace('_', '-')}: cvxpy agrees to {found.largest_difference:.1e} on {found.scope}"
        )
    for path in sorted(public.iterdir()):
        stages.say(f"wrote     {path} ({path.stat().st_size:,} bytes)")
    stages.say(
        f"next      open {public / 'manifest.json'} for what is protected and by how much; release.* for whole counts, "
        "estimates.parquet for unbiased ones with variances"
    )
