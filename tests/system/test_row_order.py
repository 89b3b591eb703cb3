"""Nothing public depends on the order of the input's rows, or on counts otherwise than by the measurements."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

import topdown as td
from support.examples import examples
from support.places import REPOSITORY
from topdown.config import load_config, load_study
from topdown.errors import GeographyError
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree
from topdown.machine.progress import Silent
from topdown.measurements import journal
from topdown.measurements.journal import BegunRelease
from topdown.microdata.written_records import synthesize
from topdown.noise import KeyedSource, SeededSource
from topdown.pipeline import draw
from topdown.pipeline import run as pipeline
from topdown.pipeline.study import study
from topdown.release.whole_counts import Release

LEVELS = ["nation", "state", "county"]
WIDTHS = {"state": 2, "county": 5}

# With signs that sort before and after "/", in two bytes, and beyond the 16-bit plane, which UTF-16 sorts otherwise.
NAMES = st.text(alphabet='aZ0!~"ñ \uffff\U00010000', min_size=1, max_size=3).filter(lambda name: name == name.strip())


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """Rows of leaves in any order: states and counties by names, counties' names repeat under other states."""
    states = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    rows = [
        {"nation": "US", "state": state, "county": county, "state_name": f"state of {state}"}
        for state in states
        for county in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    ]
    values = st.lists(st.integers(0, 50), min_size=len(rows), max_size=len(rows))
    frame = pd.DataFrame(rows).assign(adults=draw(values), children=draw(values))
    return frame.sample(frac=1, random_state=draw(st.integers(0, 2**32 - 1))).reset_index(drop=True)


def permuted(frame: pd.DataFrame, random: Any) -> pd.DataFrame:
    order = list(range(len(frame)))
    random.shuffle(order)
    return frame.iloc[order].reset_index(drop=True)


def families(geography: Geography) -> Iterator[list[str]]:
    geoids = geography.identifiers.to_pylist()
    for begin, end in itertools.pairwise(geography.child_offsets.tolist()):
        yield geoids[begin:end]


def same(one: Geography, other: Geography) -> bool:
    names = [None if g.names is None else g.names.to_pylist() for g in (one, other)]
    return one == other and names[0] == names[1]


# -- the geography --------------------------------------------------------------------------------------------------


@given(tables(), st.randoms(use_true_random=False))
def test_siblings_of_a_table_go_by_their_path(frame: pd.DataFrame, random: Any) -> None:
    def made(table: Any) -> Geography:
        return Geography.from_table(table, LEVELS, separator="/", name={"state": "state_name"})

    geography = made(frame)
    for siblings in families(geography):
        assert siblings == sorted(siblings)
    assert same(made(permuted(frame, random)), geography)
    assert same(made(pa.Table.from_pandas(permuted(frame, random))), geography)


@given(
    st.lists(st.text(alphabet="019aé\U00010000", min_size=5, max_size=5), min_size=1, max_size=30, unique=True),
    st.randoms(use_true_random=False),
)
def test_siblings_of_codes_go_by_their_code(codes: list[str], random: Any) -> None:
    named = [(code, f"name of {code}") for code in codes]

    def made(rows: list[tuple[str, str]]) -> Geography:
        return Geography.from_geoids([c for c, _ in rows], WIDTHS, names=[n for _, n in rows])

    geography = made(named)
    for siblings in families(geography):
        assert siblings == sorted(siblings)
    assert geography.names is not None
    leaves = geography.tree.leaves.start
    assert geography.names.to_pylist()[leaves:] == [f"name of {c}" for c in geography.identifiers.to_pylist()[leaves:]]
    random.shuffle(named)
    assert same(made(named), geography)


@given(tables(), st.randoms(use_true_random=False))
def test_siblings_of_edges_and_graphs_go_by_their_identifier(frame: pd.DataFrame, random: Any) -> None:
    paths = [(f"{s}/{c}", s) for s, c in zip(frame["state"], frame["county"], strict=True)]
    pairs = [*dict.fromkeys(paths), *((state, "the root") for state in dict.fromkeys(frame["state"]))]

    def made(edges: list[tuple[str, str]]) -> list[Geography]:
        names = [f"name of {child}" for child, _ in edges]
        graph = nx.DiGraph((parent, child) for child, parent in edges)
        return [
            Geography.from_edges([c for c, _ in edges], [p for _, p in edges], levels=LEVELS, names=names),
            Geography.from_networkx(graph, levels=LEVELS),
        ]

    before = made(pairs)
    for geography in before:
        for siblings in families(geography):
            assert siblings == sorted(siblings)
    random.shuffle(pairs)
    assert all(same(one, other) for one, other in zip(made(pairs), before, strict=True))


def test_a_unit_with_two_names_is_refused_whatever_the_order() -> None:
    rows = [("01", "Alabama", "01001"), ("01", "Alabamy", "01003"), ("02", "Alaska", "02001")]
    for order in itertools.permutations(rows):
        table = dict(zip(("state", "name", "county"), map(list, zip(*order, strict=True)), strict=True))
        with pytest.raises(GeographyError, match=r"state '01' has two names: 'Alabama' and 'Alabamy'; give it one"):
            Geography.from_table(table, LEVELS, root="US", name={"state": "name"})


def test_a_row_without_a_name_contradicts_none() -> None:
    rows = [("01", None, "01001"), ("01", "Alabama", "01003"), ("01", None, "01005"), ("02", None, "02001")]
    for order in itertools.permutations(rows):
        table = dict(zip(("state", "name", "county"), map(list, zip(*order, strict=True)), strict=True))
        names = Geography.from_table(table, LEVELS, root="US", name={"state": "name"}).names
        assert names is not None
        assert names.to_pylist()[:3] == [None, "Alabama", None]


def test_names_of_another_length_are_refused() -> None:
    table = {"state": ["01", "01"], "county": ["01001", "01003"], "name": ["Autauga"]}
    with pytest.raises(GeographyError, match="column 'name' has 1 rows, and the table has 2"):
        Geography.from_table(table, LEVELS, root="US", name="name")


def test_a_geography_of_arrays_in_another_order_is_refused() -> None:
    tree = Tree.from_family_sizes([[2], [2, 1]])
    Geography(("a", "b", "c"), tree, pa.array(["r", "x", "y", "x2", "x3", "x1"]))
    with pytest.raises(GeographyError, match="c 'x2' stands after its sibling 'x3'"):
        Geography(("a", "b", "c"), tree, pa.array(["r", "x", "y", "x3", "x2", "x1"]))
    with pytest.raises(GeographyError, match="b 'x' stands after its sibling 'y'"):
        Geography(("a", "b", "c"), tree, pa.array(["r", "y", "x", "x2", "x3", "x1"]))


# -- the library ----------------------------------------------------------------------------------------------------


def released(table: Any, geoid: str, cells: list[str]) -> tuple[pd.DataFrame, pd.DataFrame, Release]:
    geography = Geography.from_geoids(table[geoid], WIDTHS)
    counts = td.Counts.from_table(table, geography, geoid=geoid, cells=cells)
    measurements = td.measure(counts, td.Plan(epsilon=1), source=SeededSource(1))
    estimate = td.project(measurements, "gls-top-down", nonnegative=True)
    release = td.round_counts(estimate, source=SeededSource(2))
    return measurements.to_frame(), release.to_frame(), release


def by_pandas(persons: pd.Series) -> Any:
    """Sorted by count, the largest first."""
    return persons.value_counts().reset_index()


def by_arrow_groups(persons: pd.Series) -> Any:
    """In the order in which the units first appear among the persons."""
    table = pa.table({"county": persons.to_numpy(), "n": np.ones(len(persons), np.int64)})
    return table.group_by("county").aggregate([("n", "sum")]).rename_columns(["county", "count"])


def by_arrow_values(persons: pd.Series) -> Any:
    """In the order in which the units first appear among the persons."""
    counted = pc.value_counts(pa.array(persons))
    return {"county": counted.field("values"), "count": counted.field("counts")}


@pytest.mark.parametrize("tally", [by_pandas, by_arrow_groups, by_arrow_values])
@given(
    st.lists(st.sampled_from(["01001", "01003", "01005", "02001", "48301", "48303"]), min_size=1, max_size=80),
    st.randoms(use_true_random=False),
)
def test_tallies_of_persons_are_released_in_one_order(
    tally: Callable[[pd.Series], Any], persons: list[str], random: Any
) -> None:
    frames = released(tally(pd.Series(persons, name="county")), "county", ["count"])
    random.shuffle(persons)
    again = released(tally(pd.Series(persons, name="county")), "county", ["count"])
    for one, other in zip(frames[:2], again[:2], strict=True):
        pd.testing.assert_frame_equal(one, other)
    geography = frames[2].geography
    assert all(siblings == sorted(siblings) for siblings in families(geography))


def test_one_person_more_swaps_no_rows() -> None:
    # Two counties whose ranks one person exchanges: sorted by their counts, tables of neighbours tell them apart.
    few, many = (by_pandas(pd.Series(["01003"] * 5 + ["01001"] * n, name="county")) for n in (4, 6))
    assert few["county"].tolist() != many["county"].tolist()
    assert released(few, "county", ["count"])[1]["geoid"].tolist() == ["US", "01", "01001", "01003"]
    assert released(many, "county", ["count"])[1]["geoid"].tolist() == ["US", "01", "01001", "01003"]


# -- the main job ---------------------------------------------------------------------------------------------------

PATHS = """
[input]
assume_disjoint = true
path = "table.{kind}"
cells = ["adults", "children"]
[geography]
levels = ["nation", "state", "county"]
separator = "/"
names = {{ state = "state_name" }}
[privacy]
epsilon = 1.0
[projection]
cross_check = {check}
"""

CODES = """
[input]
assume_disjoint = true
path = "table.{kind}"
geoid = "code"
cells = ["adults", "children"]
[geography]
widths = {{ state = 2, county = 5 }}
names = "code_name"
[privacy]
epsilon = 1.0
[projection]
cross_check = {check}
"""


class Said(Silent):
    """Keeps the lines that a run prints."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@contextmanager
def fixed_noise(measurements: Any = None) -> Iterator[None]:
    """The same secret, noise, ties and shuffles in every run; or these very measurements."""
    measure = draw.measure

    def fixed(counts: Any, plan: Any, *_: Any, **__: Any) -> Any:
        return measure(counts, plan, SeededSource(7)) if measurements is None else measurements(counts, plan)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(draw, "measure", fixed))
        stack.enter_context(mock.patch.object(journal.secrets, "token_bytes", bytes))
        stack.enter_context(mock.patch.object(BegunRelease, "ties", property(lambda _: KeyedSource(bytes(32)))))
        yield


def write(frame: pd.DataFrame, path: Path) -> None:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)


def everything_public(folder: Path, toml: str, frame: pd.DataFrame, kind: str, *, microdata: bool = True) -> Any:
    """Every public byte of the release that ``toml`` makes of ``frame``, and what it printed."""
    (folder / "run.toml").write_text(toml)
    write(frame, folder / f"table.{kind}")
    said = Said()
    out = Path(tempfile.mkdtemp(dir=folder))
    public = pipeline.run(load_config(folder / "run.toml"), out, said).public
    for order in ("sorted", "shuffled") if microdata else ():
        synthesize(public, out / order, order=order, source=SeededSource(9))
    files = {str(path.relative_to(out)): path for path in sorted(out.rglob("*")) if path.is_file()}
    public_files = {name: path.read_bytes() for name, path in files.items() if not name.startswith("internal")}
    # How much memory a run takes is said of this process, which holds more from run to run.
    return public_files, [line.replace(str(out), "") for line in said.lines if not line.startswith("memory")]


def assert_same(one: Any, other: Any) -> None:
    assert list(one[0]) == list(other[0])
    assert ", ".join(name for name, data in one[0].items() if other[0][name] != data) == ""
    assert one[1] == other[1]


def coded(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows with codes of digits in place of the paths."""
    state = frame["state"].map({name: f"{k:02d}" for k, name in enumerate(dict.fromkeys(sorted(frame["state"])))})
    place = frame.groupby("state")["county"].rank(method="first").astype(int)
    code = state + place.map("{:03d}".format)
    return frame.assign(code=code, code_name="name of " + code)


@pytest.mark.system
@examples(15)
@given(tables(), st.randoms(use_true_random=False), st.sampled_from(["csv", "parquet"]), st.booleans())
def test_permuted_rows_make_the_same_release_byte_for_byte(
    frame: pd.DataFrame, random: Any, kind: str, codes: bool
) -> None:
    if codes:
        frame = coded(frame)
    toml = (CODES if codes else PATHS).format(kind=kind, check="false")
    with tempfile.TemporaryDirectory() as folder, fixed_noise():
        before = everything_public(Path(folder), toml, frame, kind)
        assert {"public/release.csv", "public/manifest.json", "sorted/part-00000.parquet"} <= set(before[0])
        locks = {name: data for name, data in before[0].items() if name.endswith(".lock")}
        assert locks == {".sorted.lock": b"", ".shuffled.lock": b""}
        assert len(before[0]) - len(locks) == 16
        for order in (permuted(frame, random), frame.sort_values("adults", ascending=False), frame[::-1]):
            assert_same(everything_public(Path(folder), toml, order, kind), before)


def test_the_counties_in_two_orders_make_the_same_release(tmp_path: Path) -> None:
    table = pd.read_parquet(REPOSITORY / "data" / "us_counties_labor_force_2009.parquet")
    toml = (REPOSITORY / "pipelines" / "us_counties.toml").read_text()
    toml = toml.replace("../data/us_counties_labor_force_2009.parquet", "table.parquet")
    with fixed_noise():
        before = everything_public(tmp_path, toml, table, "parquet", microdata=False)
        ranked = table.sort_values("employed", ascending=False)
        assert_same(everything_public(tmp_path, toml, ranked, "parquet", microdata=False), before)


@pytest.mark.system
@examples(15)
@given(tables(), st.data())
def test_at_fixed_measurements_the_counts_change_no_public_byte(frame: pd.DataFrame, data: st.DataObject) -> None:
    """Dictionaries, row groups, sizes, the set of units, lines on the terminal: with a list of units all of it."""
    toml = PATHS.format(kind="parquet", check="true").replace("separator", 'units = "units.parquet"\nseparator')
    with tempfile.TemporaryDirectory() as folder:
        units = frame.drop(columns=["adults", "children"])
        write(units, Path(folder) / "units.parquet")
        drawn = []

        def first(counts: Any, plan: Any) -> Any:
            drawn.append(td.measure(counts, plan, SeededSource(7)))
            return drawn[-1]

        with fixed_noise(first):
            before = everything_public(Path(folder), toml, frame, "parquet")
        number = st.integers(0, 2**40)
        kept = sorted(data.draw(st.sets(st.integers(0, len(frame) - 1))))
        other = frame.iloc[kept].assign(adults=data.draw(st.lists(number, min_size=len(kept), max_size=len(kept))))
        with fixed_noise(lambda counts, plan: drawn[0]):
            assert_same(everything_public(Path(folder), toml, other, "parquet"), before)


# -- the study ------------------------------------------------------------------------------------------------------


@pytest.mark.system
def test_a_study_of_permuted_rows_writes_the_same_files(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame["size"] = ["small", "large", "small"]
    text = """
        [input]
        assume_disjoint = true
        path = "table.parquet"
        geoid = "county"
        cells = ["adults", "children"]
        [geography]
        widths = { state = 2, county = 5 }
        [privacy]
        epsilon = 1.0
        [study]
        replicates = 20
        seed = 3
        workers = 1
        groups = ["size"]
        public_input = true
    """
    (tmp_path / "study.toml").write_text(text)
    written = []
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        write(frame.iloc[order], tmp_path / "table.parquet")
        out = study(load_study(tmp_path / "study.toml"), tmp_path / str(len(written))).directory
        written.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
    assert {"report.html", "errors.parquet", "rules.parquet", "densities.parquet"} <= set(written[0])
    for other in written[1:]:
        assert list(other) == list(written[0])
        for name, content in written[0].items():
            assert other[name] == content, name
