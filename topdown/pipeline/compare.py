"""Compares two existing studies by the numbers that they wrote; no count is read."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa

from topdown.errors import DataError
from topdown.machine.files import file_digest, make_folder, whole_file
from topdown.pipeline.confidential_folder import confidential_directory
from topdown.studies.batch_means import BATCH_COLUMNS, BatchMeans
from topdown.studies.report.comparison import BATCHES_FILE, FILE, Study, compared, read_kept, render_comparison
from topdown.studies.report.section import Summary
from topdown.tables.parquet import parquet_batches
from topdown.tables.tidy import named_failures
from topdown.wording import reason, shown_path

PAGE = "comparison.html"

_LARGEST = 1 << 28
"""The largest size of a summary in bytes; thousands of groups and methods take some MB."""


def compare_studies(
    first: Path, second: Path, output: Path, *, methods: tuple[str | None, str | None] = (None, None)
) -> tuple[Path, Summary]:
    """Write ``output``/internal/comparison.html, and return its path and its numbers (of `comparison.compared`).

    ``first`` and ``second``: directories of studies, or their internal/; one study twice, with two ``methods``, is fine
    too. Raises `DataError` for a directory that holds no study, `ConfigError` for a method that a study does not have,
    studies with nothing in common, or an output under a directory called public.
    """
    directory = confidential_directory(output)
    found = compared(_read(first), _read(second), methods)
    page = directory / PAGE
    with named_failures(directory):
        make_folder(directory, private=True)
        with whole_file(page, private=True) as partial:
            partial.write_text(render_comparison(found), encoding="utf-8")
    return page, found


def _read(study: Path) -> Study:
    path = next((one for one in (study / FILE, study / "internal" / FILE) if one.is_file()), None)
    if path is None:
        raise DataError(
            f"{shown_path(study)}: holds no {FILE} of a study; give the directory that `topdown study` wrote"
        )
    batches = path.parent / BATCHES_FILE
    try:
        if path.stat().st_size > _LARGEST:
            raise DataError("too large for the summary of a study")
        summary = read_kept(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{shown_path(path)}: cannot be read: {reason(error)}") from None
    except DataError as error:
        raise DataError(f"{shown_path(path)}: {error}") from None
    try:
        if file_digest(batches) != summary["batches_sha256"]:
            raise DataError(f"{shown_path(batches)}: is not the file of this study's {FILE}; make the study again")
        tables = [batch.to_pandas() for batch in parquet_batches(batches, BATCH_COLUMNS)]
        return Study(summary, BatchMeans.of_frame(pd.concat(tables, ignore_index=True)))
    except DataError:
        raise
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        raise DataError(f"{shown_path(batches)}: cannot be read: {reason(error)}; make the study again") from None
