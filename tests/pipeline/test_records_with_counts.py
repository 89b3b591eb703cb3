"""A table of records has no column that counts several in a row: one record of noise would protect many."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from topdown.config import load_config
from topdown.errors import DataError
from topdown.pipeline.draw import check

TOML = """
[input]
path = "persons.csv"
rows = "records"
geoid = "county"
[geography]
levels = ["nation", "county"]
[schema]
sex = ["f", "m"]
[privacy]
epsilon = 1
[output]
directory = "out"
"""


def written(folder: Path, **more: list[int] | list[str]) -> Path:
    frame = pd.DataFrame({"nation": "US", "county": ["01", "01", "02"], "sex": ["f", "m", "f"], **more})
    frame.to_csv(folder / "persons.csv", index=False)
    path = folder / "release.toml"
    path.write_text(TOML)
    return path


@pytest.mark.parametrize("name", ["count", "N", "Population"])
def test_a_column_of_counts_beside_records_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf'column {name!r} holds numbers above 1.*rows = "long"'):
        check(load_config(written(tmp_path, **{name: [1, 12, 3]})))


@pytest.mark.parametrize(
    "more",
    [{}, {"count": [1, 1, 1]}, {"n": ["a", "b", ""]}, {"age": [30, 40, 50]}],
    ids=["none", "ones", "text", "another name"],
)
def test_other_columns_are_left_alone(more: dict[str, list[int] | list[str]], tmp_path: Path) -> None:
    prepared = check(load_config(written(tmp_path, **more)))
    assert prepared.counts.values[0].tolist() == [2, 1]
