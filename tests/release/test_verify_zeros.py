"""A release that was received and has records where the schema's zeros say that there can be none."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.parted import TOML, made
from topdown.config import load_config
from topdown.errors import DataError
from topdown.machine.files import file_digest
from topdown.pipeline import run as pipeline

ALONE = (
    TOML.split("[privacy]", maxsplit=1)[0]
    + """
[privacy]
mechanism = "discrete-gaussian"
rho = 1
shares = { nation = 0.2, state = 0.2, county = 0.2, tract = 0.2, block = 0.2 }
"""
)
ONCE = "\n[projection]\ncross_check = false\n"


def changed(public: Path, name: str, table: pa.Table) -> None:
    """Another table under ``name``, for which the manifest vouches."""
    pq.write_table(table, public / name)
    manifest = json.loads((public / "manifest.json").read_text())
    manifest["files"][name] = {"sha256": file_digest(public / name), "bytes": (public / name).stat().st_size}
    (public / "manifest.json").write_text(json.dumps(manifest))


def with_impossible_rows(table: pa.Table) -> pa.Table:
    """The adults in houses as minors in nursing homes: rows in the order of units and cells, counts that add up."""
    frame = table.to_pandas().astype({"home": str, "age": str})
    frame.loc[(frame.home == "house") & (frame.age == "adult"), ["home", "age"]] = "nursing", "minor"
    order = {"house": 0, "nursing": 1, "barracks": 2, "minor": 0, "adult": 1, "a": 0, "b": 1, "c": 2}
    first = {geoid: k for k, geoid in enumerate(dict.fromkeys(frame.geoid))}
    frame = frame.sort_values(
        ["geoid", "home", "age", "race"], key=lambda column: column.astype(str).map({**order, **first})
    )
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.mark.parametrize("part_size", [None, 20])
def test_of_several_queries(tmp_path: Path, part_size: int | None) -> None:
    public = pipeline.run(load_config(made(tmp_path, TOML + ONCE)), part_size=part_size).public
    td.verify_release(public)
    for name in sorted(json.loads((public / "manifest.json").read_text())["files"]):
        if name.startswith("release.parquet"):
            changed(public, name, with_impossible_rows(pq.read_table(public / name)))
    with pytest.raises(DataError, match=r"'US', cell 'nursing_minor_[abc]': it has \d+, and no record can be in this"):
        td.verify_release(public)


def test_of_the_cells_alone(tmp_path: Path) -> None:
    public = pipeline.run(load_config(made(tmp_path, ALONE + ONCE))).public
    td.verify_release(public)
    table = pq.read_table(public / "release.parquet")
    wrong = pc.equal(table["cell"].cast(pa.string()), "nursing_minor_b")
    assert pc.all(pc.equal(table["value"].filter(wrong), 0)).as_py()
    values = pc.if_else(wrong, pa.scalar(0, table["value"].type), table["value"])
    # One record in the nation, a state, a county, a tract and a block: every family adds up.
    one = pc.and_(
        wrong, pc.is_in(table["geoid"].cast(pa.string()), pa.array(["US", "00", "0000", "000000", "00000000"]))
    )
    values = pc.if_else(one, pa.scalar(1, table["value"].type), values)
    place = table.column_names.index("value")
    changed(public, "release.parquet", table.set_column(place, table.schema.field("value"), values))
    with pytest.raises(DataError, match=r"nation 'US', cell 'nursing_minor_b': it has 1, and no record can be in this"):
        td.verify_release(public)
