"""Makes a release from existing measurements: another projection of the same noise, which costs no budget."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from topdown.census.noisy_read import read_noisy_measurements
from topdown.config.project_settings import ProjectConfig
from topdown.errors import ConfigError
from topdown.geography.unit_sums import area_sums
from topdown.machine.files import file_digest, locked, make_folder
from topdown.machine.progress import Silent, Stages
from topdown.noise import KeyedSource
from topdown.pipeline.already_released import require_same_forms
from topdown.pipeline.derive import Drawn, Outcome, derive, require_solver
from topdown.pipeline.exports import require_exportable, require_exports, write_exports
from topdown.projection.method import method_named
from topdown.release.known_variances import STATEMENT
from topdown.release.manifest import DerivedFrom, Origin
from topdown.release.places import require_outside_releases
from topdown.release.read import Published, read_measurements, require_all
from topdown.release.verified import verify_files
from topdown.tables.readers import require_encodable
from topdown.uncertainty.laws.known_noise import no_margins
from topdown.wording import FAILED, reason, shown_path

FILES_LIMITS = (
    "The limits of answers in limits.parquet are the constraints that the noisy measurement files publish beside the "
    "measurements. Every non-negative and every released number keeps them."
)
"""The manifest's statement on the limits in such files."""

STAGES = 6
"""How many stages `project_measurements` has, for a progress bar, and one more where there are exports."""


def project_measurements(
    config: ProjectConfig, output: Path | None = None, stages: Stages | None = None, *, workers: int | None = None
) -> Outcome:
    """The release that ``config`` derives from measurements alone, in ``output``/public.

    The same measurements and configuration give the same bytes: ties of rounding are broken by a stream whose key is
    computed from both. This key need not be secret, because the measurements are public. Raises `ConfigError`,
    `DataError` or `ProjectionError`; no partial output is left.
    """
    stages = stages or Silent()
    directory = require_encodable(config.output_path if output is None else output)
    require_outside_releases(directory)
    public = directory / "public"
    require_solver(config)
    require_exports(config, directory)
    with stages.stage("reading the measurements"):
        source = _read(config)
    require_all(source)
    measurements = source.measurements
    by_family = bool(measurements.others) or source.limits is not None
    method = method_named(config.projection.method)
    method.require(several=by_family, nonnegative=True)
    if by_family:
        method.require_root_measured(measurements)
    none = no_margins(measurements)
    require_exportable(config, measurements.geography, measurements.schema, none, by_family=by_family)
    if config.output.replicates and none is not None:
        raise ConfigError(f"output.replicates: {none}; leave replicates out")
    stages.say(f"read      {source.measurements.geography.n_nodes:,} nodes x {len(source.measurements.cells)} cells")
    levels = source.measurements.geography.levels
    config.output.require_wide(source.measurements.cells, source.measurements.schema)
    if area_sums(measurements.geography):
        cells = None if by_family else measurements.cells
        config.output.require_areas(cells, measurements.schema)
    config.output.require_margins(
        measurements.published.levels, cells=not source.measurements.others or config.output.estimates is True
    )
    stages.say(STATEMENT if source.plan is None else source.plan.describe(levels))
    try:
        make_folder(directory)
        with locked(directory / ".lock"):
            if _made_before(config, source, public):
                stages.say(f"{public} holds this release already, complete; nothing was written")
                write_exports(config, directory, stages)
                return Outcome(public, already_there=True)
            drawn = Drawn(source.measurements, _ties(config, source), source.plan, source.origin, limits=source.limits)
            del source
            derive(config, drawn, public, stages, workers=workers)
            del drawn
            write_exports(config, directory, stages)
    except BlockingIOError:
        raise ConfigError(
            f"{shown_path(directory)}: another run is writing here; wait for it, or give another --output"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{shown_path(directory)}: cannot be written: {reason(error, FAILED)}; correct the permissions, or give "
            "another --output"
        ) from None
    return Outcome(public)


def _read(config: ProjectConfig) -> Published:
    """The measurements that ``config`` names: of a release, or of noisy measurement files."""
    options, path = config.measurements, config.measurements_path
    if options.product is None:
        return read_measurements(path)
    found = read_noisy_measurements(
        path, options.product, options.state, options.levels, total=options.total, incomplete=options.incomplete
    )
    # The digest does not depend on the folder in which the files are.
    top = Path(os.path.commonpath(found.files)) if len(found.files) > 1 else found.files[0].parent
    digests = [f"{file_digest(file)} {file.relative_to(top).as_posix()}\n" for file in found.files]
    files = hashlib.sha256("".join(digests).encode()).hexdigest()
    asked = hashlib.sha256(f"{files} {options.model_dump_json(exclude={'path'})}".encode()).hexdigest()
    plan = found.measurements.plan
    notice = f"The measurements are those of noisy measurement files ({options.product}), which were drawn elsewhere."
    origin = Origin(
        units=files,
        derived_from=DerivedFrom(asked, files),
        notices=(notice,) if plan is not None else (notice, STATEMENT),
        limits=None if found.limits is None else files,
        limits_statement=FILES_LIMITS,
    )
    return Published(path, found.measurements, plan, origin, found.limits)


def _made_before(config: ProjectConfig, source: Published, public: Path) -> bool:
    """Whether ``public`` holds the result of the same derivation. Raises `ConfigError` where it holds anything else."""
    if not public.exists() or (public.is_dir() and not any(public.iterdir())):
        return False
    there = verify_files(public, "move it away, or give another --output")
    derived = there.get("derived_from")
    if (
        derived is None
        or derived["manifest"] != _digest(source)
        or there["configuration_sha256"] != _fingerprint(config, source)
    ):
        raise ConfigError(f"{shown_path(public)} holds another release; give another --output directory")
    require_same_forms(config, there, public)
    return True


def _digest(source: Published) -> str:
    assert source.origin.derived_from is not None  # nosec B101 # narrows a type: `read_measurements` says where from
    return source.origin.derived_from.manifest


def _ties(config: ProjectConfig, source: Published) -> KeyedSource:
    settled = f"{_digest(source)} {_fingerprint(config, source)}"
    return KeyedSource(hashlib.sha256(settled.encode()).digest())


def _fingerprint(config: ProjectConfig, source: Published) -> str:
    return config.fingerprint(source.origin.units, source.origin.limits, source.origin.areas)
