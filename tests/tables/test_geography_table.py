"""A geography as a table, and back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given

import topdown as td
from support.examples import examples
from support.trees import geography as named
from support.trees import trees, wide_trees
from topdown.errors import DataError
from topdown.geography.tree import Tree
from topdown.tables import geography_table
from topdown.tables.geography_table import geography_batches, read_geography
from topdown.tables.tidy import write_parquet

WITHIN = examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])


def round_trip(geography: td.Geography, folder: Path) -> td.Geography:
    write_parquet(folder / "geography.parquet", geography_batches(geography), {})
    return read_geography(folder / "geography.parquet")


def same(one: td.Geography, other: td.Geography) -> bool:
    return (
        one.levels == other.levels
        and one.tree.child_offsets.tolist() == other.tree.child_offsets.tolist()
        and one.identifiers.equals(other.identifiers)
        and (one.names is None) == (other.names is None)
        and (one.names is None or one.names.equals(other.names))
    )


@WITHIN
@given(tree=trees() | wide_trees())
def test_any_tree_comes_back(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> None:
    geography = named(tree)
    assert same(round_trip(geography, tmp_path_factory.mktemp("table")), geography)


@WITHIN
@given(tree=trees())
def test_also_over_several_batches(
    tree: Tree, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(geography_table, "_ROWS_PER_GROUP", 3)
    geography = named(tree)
    assert same(round_trip(geography, tmp_path_factory.mktemp("table")), geography)


def test_names_come_back(tmp_path: Path) -> None:
    plain = named(Tree.from_family_sizes([[2], [1, 3]]))
    names = pa.array(["all", None, "B", "c", "d", "=1+1", "f"])
    geography = td.Geography(plain.levels, plain.tree, plain.identifiers, names)
    assert same(round_trip(geography, tmp_path), geography)
    assert pq.read_table(tmp_path / "geography.parquet")["parent"].to_pylist() == [None, "n0", "n0", "n1", *["n2"] * 3]


@pytest.mark.parametrize(
    ("parents", "says"),
    [
        (["n0", "n0", "n0"], "no other, is the root"),
        ([None, None, "n0"], "no other, is the root"),
        ([None, "n0", "n1"], "not of the level above"),
        ([None, "n0", "x"], "not of the level above"),
    ],
)
def test_what_is_no_tree_is_refused(tmp_path: Path, parents: list[str | None], says: str) -> None:
    columns = {"geoid": ["n0", "n1", "n2"], "level": ["a", "b", "b"], "parent": parents}
    pq.write_table(pa.table({**columns, "name": pa.nulls(3, pa.string())}), tmp_path / "geography.parquet")
    with pytest.raises(DataError, match=rf"geography\.parquet: is not a table of units: .*{says}"):
        read_geography(tmp_path / "geography.parquet")


def test_siblings_apart_and_families_without_children_are_refused(tmp_path: Path) -> None:
    columns = {"geoid": list("rabcde"), "level": ["0", "1", "1", "2", "2", "2"], "name": pa.nulls(6, pa.string())}
    for parents in ([None, "r", "r", "a", "b", "a"], [None, "r", "r", "a", "a", "a"]):
        pq.write_table(pa.table({**columns, "parent": parents}), tmp_path / "geography.parquet")
        with pytest.raises(DataError, match="do not stand together"):
            read_geography(tmp_path / "geography.parquet")
