"""topdown project: from the measurements of a release to another release, without counts and without budget."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.places import RUN_TOML, SEVERAL_TOML
from topdown.config import load_config, load_project
from topdown.errors import ConfigError, DataError, ProjectionError
from topdown.machine.files import file_digest
from topdown.pipeline import derive
from topdown.pipeline import run as pipeline
from topdown.pipeline.project_measurements import project_measurements
from topdown.release.read import read_measurements

AGAIN = """
title = "another projection"
[measurements]
path = "output/public"
[projection]
method = "joint"
[output]
directory = "again"
"""


@pytest.fixture
def again(toy_run: Path) -> Path:
    """The TOML file of a derivation beside the release that it derives from."""
    pipeline.run(load_config(toy_run))
    path = toy_run.parent / "again.toml"
    path.write_text(AGAIN)
    return path


def made(path: Path, output: Path | None = None) -> Path:
    return project_measurements(load_project(path), output).public


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Without the kinds of text columns, which pandas and Parquet tell apart."""
    texts = dict.fromkeys(("geoid", "level", "query", "cell"), str)
    return frame.astype(texts).reset_index(drop=True)


def rewritten(public: Path, name: str, change: Any) -> None:
    """``public`` with one table changed and the manifest made to vouch for it."""
    path = public / name
    pq.write_table(change(pq.read_table(path)), path)
    manifest = json.loads((public / "manifest.json").read_text())
    manifest["files"][name] = {"sha256": file_digest(path), "bytes": path.stat().st_size}
    (public / "manifest.json").write_text(json.dumps(manifest))


def test_the_measurements_are_read_back_as_they_were(again: Path) -> None:
    """With them and the published plan, the estimates come out again to the last bit."""
    public = again.parent / "output" / "public"
    found = read_measurements(public)
    config = load_config(again.parent / "run.toml")
    estimate = td.project(found.measurements, config.projection.method, weights=config.projection.weights)
    written = pd.read_parquet(public / "estimates.parquet")
    np.testing.assert_array_equal(estimate.values.ravel(), written["non_negative"])
    np.testing.assert_array_equal(td.project(found.measurements, "gls").values.ravel(), written["unbiased"])
    assert found.measurements.fit_for_release
    assert found.measurements.values.dtype == np.int64


def test_a_derived_release_is_whole_and_says_where_it_comes_from(again: Path) -> None:
    public, source = made(again), again.parent / "output" / "public"
    td.verify_release(public)
    manifest, first = (json.loads((folder / "manifest.json").read_text()) for folder in (public, source))
    assert manifest["derived_from"] == {
        "manifest": file_digest(source / "manifest.json"),
        "measurements": file_digest(source / "measurements.parquet"),
    }
    assert first["derived_from"] is None
    for same in ("privacy", "invariants", "units", "levels", "cells", "ledger", "fit_for_release"):
        assert manifest[same] == first[same], same
    assert manifest["projections"]["non_negative"]["method"] == "joint"
    assert (public / "measurements.parquet").read_bytes() == (source / "measurements.parquet").read_bytes()
    assert (public / "geography.parquet").read_bytes() == (source / "geography.parquet").read_bytes()


def test_the_same_derivation_is_the_same_bytes_and_is_not_made_twice(again: Path, tmp_path: Path) -> None:
    public = made(again)
    assert content(made(again, tmp_path / "other")) == content(public)
    assert project_measurements(load_project(again)).already_there


def test_a_derivation_of_a_derivation(again: Path, tmp_path: Path) -> None:
    made(again)
    path = again.parent / "third.toml"
    path.write_text('[measurements]\npath = "again/public"\n[output]\ndirectory = "third"\n')
    first, third = again.parent / "output" / "public", made(path)
    for table in ("measurements.parquet", "estimates.parquet"):
        pd.testing.assert_frame_equal(pd.read_parquet(first / table), pd.read_parquet(third / table))


def test_no_budget_and_no_confidential_file_is_touched(again: Path) -> None:
    """It works where a release was handed on: public/ alone, no table, no internal/."""
    alone = again.parent / "handed on"
    shutil.copytree(again.parent / "output" / "public", alone / "output" / "public")
    shutil.copy(again, alone)
    assert sorted(path.name for path in made(alone / "again.toml").parent.iterdir()) == [".lock", "public"]


@pytest.mark.parametrize(
    "section",
    [
        'mechanism = "laplace"\nepsilon = 1\ngrid_bits = 5\nshares = { nation = 0, state = "1/2", county = "1/2" }',
        'mechanism = "discrete-gaussian"\nrho = 1\nshares = { nation = "1/2", state = 0, county = "1/2" }',
        'epsilon = 1\nshares = { nation = 0, county = 1 }\ninvariants = ["state"]',
        'epsilon = 1\nshares = { nation = "1/4", state = "1/4", county = "1/2" }\n[noise]\nbounds = "truncated"',
    ],
)
def test_every_kind_of_measurement_is_read_back(toy_run: Path, section: str) -> None:
    begin = RUN_TOML.index("epsilon = 1.0")
    toy_run.write_text(RUN_TOML[:begin] + section)
    public = pipeline.run(load_config(toy_run)).public
    found = read_measurements(public)
    written = pd.read_parquet(public / "measurements.parquet")
    pd.testing.assert_frame_equal(plain(found.measurements.to_frame()), plain(written))
    first = json.loads((public / "manifest.json").read_text())["privacy"]
    assert found.plan.to_dict() == {name: first[name] for name in found.plan.to_dict()}
    again = toy_run.parent / "again.toml"
    again.write_text('[measurements]\npath = "output/public"\n[output]\ndirectory = "again"\n')
    made_again = made(again)
    for name in ("measurements.parquet", "estimates.parquet"):
        # Intervals hold the released count, for which ties are broken anew.
        one, other = (
            pd.read_parquet(place / name).drop(columns=["lower", "upper"], errors="ignore")
            for place in (public, made_again)
        )
        pd.testing.assert_frame_equal(one, other)


def test_several_queries_are_read_back(tmp_path: Path) -> None:
    """What `run` cannot publish yet, `publish` can write and `read_measurements` read."""
    schema = td.Schema.from_mapping(
        {"age": ["child", "adult"], "sex": ["f", "m"]}, {"age": {"any": {"all": ["child", "adult"]}}}
    )
    frame = pd.DataFrame(np.arange(12).reshape(3, 4), columns=list(schema.cells()), index=["01001", "01003", "02001"])
    geography = td.Geography.from_geoids(list(frame.index), {"state": 2, "county": 5})
    counts = td.Counts.from_table(
        frame.rename_axis("county").reset_index(), geography, geoid="county", cells=list(schema.cells()), schema=schema
    )
    shares = {"state": {"total": "1/4", "age": "1/4"}, "county": {"detailed": "1/4", "any * sex": "1/4"}}
    plan = td.Plan("discrete-gaussian", rho=1, shares=shares, invariants={"nation": ["total"]})
    measurements = td.measure(counts, plan, source=td.SeededSource(3))
    least_squares = td.project(measurements, "gls")
    non_negative = td.project(td.Measurements.from_arrays(geography, measurements.values, 1.0, cells=counts.cells))
    release = td.round_counts(non_negative)
    estimates = {"unbiased": least_squares, "non_negative": non_negative}

    from topdown.release.manifest import Description, Origin
    from topdown.release.publication import Made, begun, publish, tables_of

    config = load_project(_derivation(tmp_path))
    about = Description(config, measurements, measurements.plan, Origin(), estimates, release.layout, False)
    with begun(tmp_path / "public", measurements, fit_for_release=False) as folder:
        publish(folder, tables_of(folder, Made(release, estimates, None, {}), about), about)
    found = read_measurements(tmp_path / "public").measurements
    assert found.keys == measurements.keys
    assert found.schema == schema
    for key in found.keys:
        np.testing.assert_array_equal(found[key].values, measurements[key].values)
        np.testing.assert_array_equal(found[key].variance, measurements[key].variance)
    path = _derivation(tmp_path)
    with pytest.raises(ConfigError, match=r"x >= 0"):
        made(path)
    assert not (tmp_path / "again" / "public").exists()


def _derivation(folder: Path) -> Path:
    path = folder / "again.toml"
    path.write_text(AGAIN.replace("output/public", "public"))
    return path


# -- what is refused --------------------------------------------------------------------------------------------------


def other_value(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("value"), "value", pa.array([1.5] * len(table)))


def without(name: str) -> Any:
    return lambda table: table.drop_columns([name])


def other_order(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.roll(np.arange(len(table)), 1)))


def not_a_number(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("value"), "value", pa.array([np.nan] * len(table)))


def negative_variance(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("variance"), "variance", pa.array([-1.0] * len(table)))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("measurements.parquet", without("variance")),
        ("measurements.parquet", other_order),
        ("measurements.parquet", lambda table: table.slice(1)),
        ("measurements.parquet", lambda table: pa.concat_tables([table, table])),
        ("measurements.parquet", not_a_number),
        ("measurements.parquet", negative_variance),
        ("geography.parquet", without("parent")),
        ("geography.parquet", other_order),
        ("geography.parquet", lambda table: table.slice(1)),
        ("geography.parquet", lambda table: pa.concat_tables([table, table])),
    ],
)
def test_tables_that_are_not_what_the_manifest_describes(again: Path, name: str, change: Any) -> None:
    """Vouched for by a manifest that was made to fit; the file at fault is named."""
    rewritten(again.parent / "output" / "public", name, change)
    with pytest.raises(DataError, match=name):
        made(again)
    assert not (again.parent / "again" / "public").exists()


def test_a_file_that_was_changed(again: Path) -> None:
    with (again.parent / "output" / "public" / "measurements.parquet").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match=r"measurements\.parquet has"):
        made(again)


@pytest.mark.parametrize("key", ["privacy", "cells", "schema", "units", "ledger"])
@pytest.mark.parametrize("value", [None, 3, {}, [], "x", {"mechanism": "geometric"}])
def test_a_manifest_that_does_not_describe_the_measurements(again: Path, key: str, value: Any) -> None:
    path = again.parent / "output" / "public" / "manifest.json"
    manifest = json.loads(path.read_text())
    if key in ("schema", "ledger") and value is None:
        value = 3.5
    path.write_text(json.dumps({**manifest, key: value}))
    with pytest.raises(DataError, match=r"manifest|measurements"):
        made(again)


def test_a_release_of_an_earlier_version(again: Path) -> None:
    public = again.parent / "output" / "public"
    (public / "geography.parquet").unlink()
    manifest = json.loads((public / "manifest.json").read_text())
    del manifest["files"]["geography.parquet"]
    (public / "manifest.json").write_text(json.dumps(manifest))
    td.verify_release(public)
    with pytest.raises(DataError, match=r"has no geography\.parquet"):
        made(again)


def test_another_release_in_its_place_is_not_touched(again: Path) -> None:
    public = made(again)
    before = content(public)
    again.write_text(AGAIN.replace("joint", "top-down"))
    with pytest.raises(ConfigError, match="holds another release"):
        made(again)
    with pytest.raises(ConfigError, match="holds another release"):
        made(again, again.parent / "output")
    assert content(public) == before


def test_a_table_and_measurements_are_told_apart(again: Path) -> None:
    with pytest.raises(ConfigError, match=r"names no measurements.*topdown run"):
        load_project(again.parent / "run.toml")
    with pytest.raises(ConfigError, match="topdown project"):
        load_config(again)
    again.write_text(AGAIN.replace("path", "pth"))
    with pytest.raises(ConfigError, match=r"unknown key measurements\.pth; did you mean 'path'"):
        load_project(again)


def test_nothing_is_left_where_the_projection_fails(again: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ProjectionError("no")

    monkeypatch.setattr(derive, "round_counts", fails)
    with pytest.raises(ProjectionError):
        made(again)
    assert [path.name for path in (again.parent / "again").iterdir()] == [".lock"]


def test_a_method_without_a_solver_of_the_queries_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("county,adults,children\n01001,10,1\n01003,20,2\n02001,0,4\n")
    (tmp_path / "run.toml").write_text(SEVERAL_TOML)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    again = f'[measurements]\npath = "{public}"\n[projection]\nmethod = "joint"\n[output]\ndirectory = "again"\n'
    (tmp_path / "again.toml").write_text(again)
    with pytest.raises(ConfigError, match=r"method 'joint'.*has no solver of several queries"):
        project_measurements(load_project(tmp_path / "again.toml"))
    assert not (tmp_path / "again").exists()
