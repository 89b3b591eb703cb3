from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

import topdown as td
from support.trees import trees
from topdown.errors import DataError, GeographyError
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree

LEVELS = ["nation", "state", "county"]
WIDTHS = {"state": 2, "county": 5}
GEOIDS = ["01001", "01003", "02001"]
EXPECTED = ["US", "01", "02", "01001", "01003", "02001"]


def coded(tree: Tree) -> Geography:
    """``tree`` with a path of two digits a level as its codes."""
    codes = ["US"]
    for node in range(1, tree.n_nodes):
        parent = int(tree.parent[node])
        codes.append(("" if parent == 0 else codes[parent]) + f"{node - tree.children(parent).start:02d}")
    return Geography(tuple(f"l{k}" for k in range(tree.n_levels)), tree, pa.array(codes))


def rows(geography: Geography) -> dict[str, list[str]]:
    """The table of ``geography``, one row per leaf, one column per level."""
    geoids = geography.identifiers.to_pylist()
    columns: dict[str, list[str]] = {level: [] for level in geography.levels}
    for leaf in range(geography.tree.leaves.start, geography.n_nodes):
        node = leaf
        for level in reversed(geography.levels):
            columns[level].append(geoids[node])
            node = int(geography.parent[node])
    return columns


# -- the four ways in, and the way back ---------------------------------------------------------------------------


def test_all_constructors_give_the_same_geography(frame: pd.DataFrame) -> None:
    graph = nx.DiGraph([("US", "01"), ("US", "02"), ("01", "01001"), ("01", "01003"), ("02", "02001")])
    made = [
        Geography.from_table(frame, levels=LEVELS),
        Geography.from_table(pa.Table.from_pandas(frame), LEVELS),
        Geography.from_table(frame.drop(columns="nation"), LEVELS, root="US"),
        Geography.from_table({name: frame[name].tolist() for name in LEVELS}, LEVELS),
        Geography.from_geoids(GEOIDS, widths=WIDTHS, root="US"),
        Geography.from_geoids(pd.Series(GEOIDS, dtype="category"), WIDTHS),
        Geography.from_geoids(pa.chunked_array([GEOIDS[:1], GEOIDS[1:]]), WIDTHS),
        Geography.from_geoids(np.array(GEOIDS), WIDTHS),
        Geography.from_geoids([*GEOIDS, "01", "02"], WIDTHS),
        Geography.from_edges(["01", "02", *GEOIDS], ["US", "US", "01", "01", "02"], levels=LEVELS),
        Geography.from_edges(["US", "01", "02", *GEOIDS], [None, "US", "US", "01", "01", "02"], levels=LEVELS),
        Geography.from_networkx(graph, levels=LEVELS),
    ]
    for geography in made:
        assert geography.levels == ("nation", "state", "county")
        assert geography.identifiers.to_pylist() == EXPECTED
        assert geography.parent.tolist() == [-1, 0, 0, 1, 1, 2]
        assert geography.level_offsets.tolist() == [0, 1, 3, 6]
        assert geography.child_offsets.tolist() == [1, 3, 5, 6]
        assert geography == made[0]


@given(trees())
def test_networkx_and_back(tree: Tree) -> None:
    geography = coded(tree)
    graph = geography.to_networkx()
    assert nx.is_arborescence(graph)
    assert graph.number_of_nodes() == geography.n_nodes
    assert Geography.from_networkx(graph) == geography


def test_networkx_keeps_names_and_levels(frame: pd.DataFrame) -> None:
    frame["title"] = ["Autauga", "Baldwin", "Aleutians"]
    graph = Geography.from_table(frame, LEVELS, name="title").to_networkx()
    assert graph.nodes["01003"] == {"level": "county", "name": "Baldwin"}
    assert graph.nodes["01"] == {"level": "state"}
    assert list(graph.edges("US")) == [("US", "01"), ("US", "02")]
    back = Geography.from_networkx(graph)
    assert back.names is not None
    assert back.names.to_pylist() == [None, None, None, "Autauga", "Baldwin", "Aleutians"]


@given(trees())
def test_every_constructor_on_random_trees(tree: Tree) -> None:
    geography = coded(tree)
    table = rows(geography)
    assert Geography.from_table(table, geography.levels) == geography
    graph = geography.to_networkx()
    pairs = [(child, parent) for parent, child in graph.edges]
    titles = list(geography.levels)
    if tree.n_levels > 1:
        assert Geography.from_edges([c for c, _ in pairs], [p for _, p in pairs], levels=titles) == geography
        widths = {level: 2 * k for k, level in enumerate(titles) if k}
        leaves = table[titles[-1]]
        assert Geography.from_geoids(leaves, widths, root_level="l0") == geography


def test_networkx_with_integer_nodes() -> None:
    geography = Geography.from_networkx(nx.balanced_tree(2, 2, create_using=nx.DiGraph))
    assert geography.identifiers.to_pylist() == list("0123456")
    assert geography.levels == ("level 0", "level 1", "level 2")
    assert Geography.from_edges([1, 2], [0, 0]).identifiers.to_pylist() == ["0", "1", "2"]


def test_one_node_is_a_geography() -> None:
    graph = nx.DiGraph()
    graph.add_node("US")
    assert Geography.from_networkx(graph).identifiers.to_pylist() == ["US"]
    assert Geography.from_table({"nation": ["US"]}, ["nation"]).n_nodes == 1


def test_names_that_repeat_under_other_parents_are_told_apart_by_their_path() -> None:
    table = {"state": ["OHIO", "OHIO", "ILLINOIS"], "county": ["LAKE", "ERIE", "LAKE"]}
    with pytest.raises(GeographyError, match=r"LAKE.*two parents.*OHIO.*ILLINOIS.*separator"):
        Geography.from_table(table, LEVELS, root="US")
    geography = Geography.from_table(table, LEVELS, root="US", separator="/")
    assert geography.identifiers.to_pylist() == ["US", "ILLINOIS", "OHIO", "ILLINOIS/LAKE", "OHIO/ERIE", "OHIO/LAKE"]
    assert geography.names is not None
    assert geography.names.to_pylist() == ["US", "ILLINOIS", "OHIO", "LAKE", "ERIE", "LAKE"]


def test_names_by_level_and_beside_codes(frame: pd.DataFrame) -> None:
    frame["s"], frame["c"] = ["Alabama", "Alabama", "Alaska"], ["Autauga", "Baldwin", "Aleutians"]
    by_level = Geography.from_table(frame, LEVELS, name={"state": "s", "county": "c"})
    assert by_level.names is not None
    assert by_level.names.to_pylist() == [None, "Alabama", "Alaska", "Autauga", "Baldwin", "Aleutians"]
    for order in ([0, 1, 2], [2, 1, 0], [0, 2, 1]):
        beside = Geography.from_geoids([GEOIDS[k] for k in order], WIDTHS, names=[frame["c"][k] for k in order])
        assert beside.names is not None
        named = dict(zip(beside.identifiers.to_pylist(), beside.names.to_pylist(), strict=True))
        assert named == dict(zip(EXPECTED, [None, None, None, "Autauga", "Baldwin", "Aleutians"], strict=True))
    mixed = Geography.from_geoids(["01", *GEOIDS], WIDTHS, names=["Alabama", *frame["c"]])
    assert mixed.names is not None
    assert mixed.names.to_pylist() == [None, "Alabama", None, "Autauga", "Baldwin", "Aleutians"]
    edges = Geography.from_edges(["01", "02"], ["US", "US"], names=["Alabama", "Alaska"])
    assert edges.names is not None
    assert edges.names.to_pylist() == [None, "Alabama", "Alaska"]


# -- looking at one -----------------------------------------------------------------------------------------------


def test_looking_up_and_describing(geography: Geography) -> None:
    assert geography.index_of(["01003", "US", "99", "02"]).tolist() == [4, 0, -1, 2]
    assert geography.index_of(["01001", "01003", "02001"]).tolist() == [3, 4, 5]
    assert geography.level_slice("state") == slice(1, 3)
    assert geography.level_name(4) == "county"
    assert geography.describe(4) == "county '01003'"
    assert repr(geography) == "Geography(1 nation, 2 state, 3 county)"
    assert len(geography) == geography.n_nodes == 6
    assert geography.geoid.tolist() == EXPECTED
    with pytest.raises(GeographyError, match=r"no level 'tract'.*nation, state, county"):
        geography.level_slice("tract")


def test_equality_looks_at_levels_shape_and_identifiers(geography: Geography) -> None:
    assert geography != Geography.from_geoids(GEOIDS, {"state": 2, "parish": 5})
    assert geography != Geography.from_geoids(["01001", "01005", "02001"], WIDTHS)
    assert geography != Geography.from_geoids(["01001", "02001", "02003"], WIDTHS)
    assert geography != "a string"


def test_it_is_frozen(geography: Geography) -> None:
    with pytest.raises(AttributeError):
        geography.levels = ("a",)  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        geography.parent[0] = 0


# -- what is no geography -----------------------------------------------------------------------------------------

TABLE = {"nation": ["US"] * 3, "state": ["01", "01", "02"], "county": GEOIDS}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"state": ["01", "02", "02"], "county": ["01001", "01001", "02001"]}, "'01001' has two parents.*'01'.*'02'"),
        ({"county": ["01001", "01001", "02001"]}, "county '01001': duplicate GEOID .row 1.*one row per leaf"),
        ({"nation": ["US", "US", "CA"]}, "'nation' has 2 units .'CA', 'US'.*more than one root"),
        ({"state": ["01", None, "02"]}, "row 1: level 'state' is missing, so '01003' is an orphan"),
        ({"state": ["01", "", "02"]}, "row 1: level 'state' is missing"),
        ({"county": ["01001", "01003", None]}, "row 2: level 'county' is missing"),
        ({"county": [1001, 1003, 2001]}, "column 'county' holds numbers .int64.*zero-padded strings.*zfill"),
        ({"county": [1001.0, None, 2001.0]}, "column 'county' holds numbers"),
        ({"county": ["01", "01003", "02001"]}, "duplicate GEOID '01': .*level 'state'.*level 'county'"),
        ({"county": ["01001", "01003"]}, "column 'county' has 2 rows"),
        ({"county": [b"1", b"2", b"3"]}, "holds bytes.*decode"),
        ({"county": ["01001", 1003, "02001"]}, "must all be strings"),
        ({"nation": [], "state": [], "county": []}, "no rows"),
    ],
)  # fmt: skip
def test_invalid_tables_are_refused_by_name(change: dict[str, Any], says: str) -> None:
    with pytest.raises(GeographyError, match=says):
        Geography.from_table({**TABLE, **change}, LEVELS)


def test_tables_without_their_columns_are_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(GeographyError, match="no column 'tract'; it has 'nation', 'state'"):
        Geography.from_table(frame, ["nation", "tract"])
    with pytest.raises(GeographyError, match="no levels"):
        Geography.from_table(frame, [])
    with pytest.raises(GeographyError, match="no rows"):
        Geography.from_table({}, LEVELS)
    with pytest.raises(GeographyError, match="two columns of the table are called 'state'"):
        Geography.from_table(frame.rename(columns={"county": "state"}), ["nation", "state"])
    with pytest.raises(GeographyError, match="level names repeat"):
        Geography.from_edges(["a"], ["b"], levels=["x", "x"])


@pytest.mark.parametrize(
    ("geoids", "says"),
    [
        ([1001, 1003, 2001], "geoids holds numbers .int64.*zero-padded.*'01001' becomes 1001"),
        (["1001", "01003"], "row 0: GEOID '1001' has 4 char.*state 2, county 5.*zero was lost.*'01001' is meant"),
        ([" 01001", "01003"], "GEOID ' 01001' has 6 characters.*remove the blanks"),
        (["01001", "0100"], "GEOID '0100' has 4 characters"),
        (["01001", "01001"], "county '01001': duplicate GEOID"),
        (["01003", "01001", "01003"], "county '01003': duplicate GEOID"),
        (["01001", None], "row 1: the GEOID is missing"),
        (["01001", ""], "row 1: GEOID '' has 0 characters"),
        (["01001", "02"], "state '02' has no county below it: a leaf above the leaf level"),
        (["01001", "01", "01"], "duplicate GEOID '01'"),
        (["01", "02"], "no GEOID has the width of a leaf .county, 5"),
        ([], "no GEOIDs"),
    ],
)  # fmt: skip
def test_invalid_codes_are_refused_by_name(geoids: list[Any], says: str) -> None:
    with pytest.raises(GeographyError, match=says):
        Geography.from_geoids(geoids, WIDTHS)


def test_a_lost_zero_that_looks_like_an_inner_unit_is_explained() -> None:
    widths = {"state": 2, "county": 5, "tract": 11, "block group": 12}
    with pytest.raises(GeographyError, match=r"tract '10010201001' has no block group.*leading zero.*'010010201001'"):
        Geography.from_geoids(["10010201001", "200102010012"], widths)


def test_unusable_widths_roots_and_names_are_refused() -> None:
    with pytest.raises(GeographyError, match="widths must increase"):
        Geography.from_geoids(GEOIDS, {"county": 5, "state": 2})
    with pytest.raises(GeographyError, match="widths must increase"):
        Geography.from_geoids(GEOIDS, {})
    with pytest.raises(GeographyError, match="duplicate GEOID '01': it names the root and a unit below it"):
        Geography.from_geoids(GEOIDS, WIDTHS, root="01")
    for geoids in (GEOIDS, ["01", *GEOIDS]):
        with pytest.raises(GeographyError, match=f"2 names for {len(geoids)} GEOIDs"):
            Geography.from_geoids(geoids, WIDTHS, names=["a", "b"])


@pytest.mark.parametrize(
    ("child", "parent", "says"),
    [
        (["a", "b", "b"], ["r", "r", "a"], "'b' has two parents: 'r' and 'a'"),
        (["a", "a"], ["r", "r"], "duplicate GEOID 'a'.*listed 2 times"),
        (["a", "b", "c"], ["c", "a", "b"], "a cycle: .*'a'.* in .*no node is the root"),
        (["a", "b", "c"], ["r", "c", "b"], "a cycle: 'b' in 'c' in 'b'"),
        (["a"], ["a"], "a cycle: 'a' in 'a'"),
        (["a", "b"], ["r", "s"], "more than one root: .*'r'.*'s'"),
        (["a", "x"], ["r", None], "'x' is an orphan"),
        (["a", "b", "c"], ["r", "r", "a"], "'b' .level 1. is a leaf above the leaf level.*chain"),
        (["a", None], ["r", "r"], "row 1: the child is missing .its parent is 'r'"),
        (["a", ""], ["r", "r"], "row 1: the child is missing"),
        (["a", "b"], ["r"], "2 children and 1 parents"),
        ([], [], "no edges"),
    ],
)
def test_invalid_edges_are_refused_by_name(child: list[Any], parent: list[Any], says: str) -> None:
    with pytest.raises(GeographyError, match=says):
        Geography.from_edges(child, parent)


@pytest.mark.parametrize(
    ("edges", "says"),
    [
        ([("r", "a"), ("r", "b"), ("a", "b")], "'b' has two parents"),
        ([("r", "a"), ("a", "b"), ("b", "a")], "a cycle: .*'a'"),
        ([("r", "a"), ("s", "b")], "more than one root: 'r', 's'"),
        ([("r", "a"), ("r", "b"), ("a", "c")], "'b' .*leaf above the leaf level"),
        ([("r", 1), ("r", "1")], "duplicate GEOID '1'"),
    ],
)
def test_invalid_graphs_are_refused_by_name(edges: list[tuple[Any, Any]], says: str) -> None:
    with pytest.raises(GeographyError, match=says):
        Geography.from_networkx(nx.DiGraph(edges))


def test_graphs_that_are_no_trees_are_refused() -> None:
    lonely = nx.DiGraph([("r", "a")])
    lonely.add_node("x")
    for graph, says in ((nx.DiGraph(), "empty"), (nx.Graph([("a", "b")]), "undirected"), (lonely, "'x' is an orphan")):
        with pytest.raises(GeographyError, match=says):
            Geography.from_networkx(graph)


def test_its_errors_are_value_errors_about_data() -> None:
    assert issubclass(GeographyError, DataError)
    assert issubclass(DataError, ValueError)


def test_two_hundred_thousand_codes_take_the_fast_way() -> None:
    codes = [f"{state:02d}{county:03d}{tract:06d}{group:1d}"
             for state in range(50) for county in range(20) for tract in range(50) for group in range(4)]  # fmt: skip
    widths = {"state": 2, "county": 5, "tract": 11, "group": 12}
    geography = td.Geography.from_geoids(codes, widths)
    assert np.diff(geography.level_offsets).tolist() == [1, 50, 1_000, 50_000, 200_000]
    # The way for codes in any order gives the same where they are in order but for the last two rows.
    assert Geography.from_geoids(codes[:1000], widths) == Geography.from_table(
        {"nation": ["US"] * 1000} | {level: [c[:width] for c in codes[:1000]] for level, width in widths.items()},
        ["nation", *widths],
    )


def test_a_lost_zero_in_a_column_of_codes_is_explained() -> None:
    table = {"nation": ["US"] * 3, "state": ["01", "01", "48"], "county": ["1001", "1003", "48301"]}
    with pytest.raises(GeographyError, match=r"county '1001' lies in state '01' and lost .*'01001' is meant"):
        td.Geography.from_table(table, ["nation", "state", "county"])
    table["county"] = ["01001", "01003", "48301"]
    assert td.Geography.from_table(table, ["nation", "state", "county"]).n_leaves == 3


def test_numbers_that_are_no_hierarchical_codes_are_left_alone() -> None:
    table = {"country": ["K"] * 3, "county": ["1", "1", "2"], "ward": ["17", "9", "230"]}
    assert td.Geography.from_table(table, ["country", "county", "ward"]).n_leaves == 3


def test_counts_in_the_column_of_codes_are_not_shown_because_one_of_them_is_0() -> None:
    """Columns in another order: numbers of seven digits where codes should be, and a 0 among them."""
    with pytest.raises(GeographyError, match="not shown: it may be a count") as error:
        td.Geography.from_geoids(["1708048", "2855172", "9323196", "0"], {"state": 2, "county": 5})
    assert "1708048" not in str(error.value)
