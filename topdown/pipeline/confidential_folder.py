"""Where results that are compared with the true counts are written: never in a folder called public."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pyarrow as pa

from topdown.release.places import require_not_public
from topdown.tables.tidy import write_parquet


def confidential_directory(output: Path) -> Path:
    """``output``/internal. Raises `ConfigError` if a folder on the path is called public, or is a release."""
    require_not_public(output, "a study compares with the true counts")
    return output / "internal"


def write_marked(path: Path, frame: pd.DataFrame, marks: Mapping[str, str]) -> None:
    """Write ``frame`` to ``path`` with the metadata ``marks``, of which "replicates" and "notice" are columns, too."""
    marked = frame.assign(replicates=int(marks["replicates"]), notice=marks["notice"])
    batches = pa.Table.from_pandas(marked, preserve_index=False).combine_chunks().to_batches()
    write_parquet(path, iter(batches), marks, private=True)
