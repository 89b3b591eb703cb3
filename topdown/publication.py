"""The public directory of a release: all of its files, which appear together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pyarrow as pa

from topdown import __version__
from topdown.errors import DataError
from topdown.files import whole_folder
from topdown.measurements import Measurements
from topdown.parallel import map_ordered
from topdown.projection.estimate import Estimate
from topdown.release import Release
from topdown.tables import tidy_batches, write_csv, write_json, write_parquet
from topdown.wording import FAILED, reason, shown_path


def publish(
    public: Path,
    measurements: Measurements,
    estimates: Mapping[str, Estimate],
    release: Release,
    manifest: Callable[[Mapping[str, Path]], dict[str, Any]],
    *,
    csv: bool,
    executor: Executor | None = None,
) -> None:
    """Write the tables and, from their paths, the manifest into a folder beside ``public``, then give it that name.

    ``executor``: where files are written at the same time. Raises `DataError` when something cannot be written; nothing
    then has a final name.
    """
    marks = {"software": f"topdown {__version__}", "fit for release": str(release.fit_for_release)}
    try:
        with whole_folder(public) as staging:

            def parquet(name: str, batches: Iterator[pa.RecordBatch]) -> Callable[[], None]:
                return lambda: write_parquet(staging / name, batches, marks)

            writers = {
                "estimates.parquet": parquet("estimates.parquet", _estimate_batches(estimates)),
                "measurements.parquet": parquet("measurements.parquet", measurements.batches()),
                "release.parquet": parquet("release.parquet", release.batches()),
            }
            if csv:
                writers["release.csv"] = lambda: write_csv(staging / "release.csv", release.batches())
            # Every writer ends before the folder goes away beneath one that is still at work.
            for error in list(map_ordered(_failure, list(writers.values()), executor)):
                if error is not None:
                    raise error
            write_json(staging / "manifest.json", manifest({name: staging / name for name in writers}))
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{shown_path(public)}: cannot be written: {reason(error, FAILED)}; free the space or correct the path, "
            "and run again: no noise will be drawn again"
        ) from None


def _failure(write: Callable[[], None]) -> Exception | None:
    try:
        write()
    except Exception as error:
        return error
    return None


def _estimate_batches(estimates: Mapping[str, Estimate]) -> Iterator[pa.RecordBatch]:
    """Linear estimates (unbiased unless noise is bounded) with their variances beside the non-negative ones, never one
    without the other; the columns are called as the estimates are."""
    (linear_name, linear), (name, non_negative) = estimates.items()
    columns = {linear_name: linear.values, "variance": linear.variance, name: non_negative.values}
    return tidy_batches(linear.geography, linear.cells, columns, names=True)
