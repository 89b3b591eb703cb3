"""What describes a release by others' standards, read and judged by others' libraries."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import csvw
import pandas as pd
import pyarrow.parquet as pq
import pytest
import rdflib
from frictionless import Package
from rdflib import namespace

from support.places import RUN_TOML, SEVERAL_TOML
from topdown.config import load_config
from topdown.errors import ConfigError
from topdown.machine.files import file_digest
from topdown.pipeline import run as pipeline
from topdown.release.manifest import SCHEMA_VERSION

CATALOGUE = """
[catalogue]
publisher = "Office of Counts"
licence = "https://creativecommons.org/publicdomain/zero/1.0/"
period = "2019/2020-04-01"
url = "https://example.org/counts"
contact = "counts@example.org"
date = "2021-03-01"
"""
EVERYTHING = '[output]\nwide = true\nestimates_csv = true\ntables = ["cell", "total"]\n'
TABLES = """
[output]
tables = ["age"]
estimates_csv = true
"""


LIMITS = """
[bounds]
path = "limits.csv"
"""


@pytest.fixture(params=["one query", "several queries", "histograms in parts, with limits"])
def public(
    request: pytest.FixtureRequest, tmp_path: Path, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> Path:
    frame.assign(title=["A, b", 'the "second"', "=1+1"]).to_csv(tmp_path / "table.csv", index=False)
    several = request.param != "one query"
    text = SEVERAL_TOML + TABLES if several else RUN_TOML + EVERYTHING
    text = text.replace("[geography]", '[geography]\nnames = "title"')
    if request.param == "histograms in parts, with limits":
        monkeypatch.setattr("topdown.release.partition._ROWS_OF_ONE_FILE", 3)
        (tmp_path / "limits.csv").write_text("geoid,query,answer,lower,upper\n01001,age,adults,1,100\n")
        text += LIMITS
    (tmp_path / "run.toml").write_text(text + CATALOGUE)
    return pipeline.run(load_config(tmp_path / "run.toml")).public


def written(public: Path) -> set[Path]:
    """The files of all tables."""
    return {path for path in public.rglob("*") if path.is_file() and path.suffix in (".csv", ".parquet")}


def test_frictionless_finds_the_data_package_and_its_tables_valid(public: Path) -> None:
    report = Package(str(public / "datapackage.json")).validate()
    assert report.errors == []
    assert [(task.name, task.errors) for task in report.tasks if not task.valid] == []
    # A table in parts is one.
    tables = {path if path.parent.suffix != ".parquet" else path.parent for path in written(public)}
    assert len(report.tasks) == len(tables) > 5


def test_frictionless_sees_a_table_that_is_not_as_described(public: Path) -> None:
    path = public / "release.csv"
    path.write_text(path.read_text().replace('"01001"', '"01003"', 1))
    report = Package(str(public / "datapackage.json")).validate()
    assert [task.name for task in report.tasks if not task.valid] == ["release-csv"]


def test_csvw_finds_the_text_tables_valid(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(public)
    found = csvw.CSVW("csv-metadata.json", validate=True)
    assert found.is_valid, found.warnings
    there = {path.relative_to(public).as_posix() for path in public.rglob("*.csv")}
    assert {str(table.url) for table in found.tables} == there
    rows = {str(table.url): list(table.iterdicts()) for table in found.tables}
    frame = pd.read_csv(public / "release.csv", dtype={"geoid": str})
    assert [row["geoid"] for row in rows["release.csv"]] == frame["geoid"].tolist()


def test_csvw_sees_a_key_that_stands_twice(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(public)
    lines = (public / "release.csv").read_text().splitlines()
    (public / "release.csv").write_text("\n".join([*lines, lines[-1]]) + "\n")
    with pytest.raises(ValueError, match="duplicate primary key"):
        _ = csvw.CSVW("csv-metadata.json", validate=True).is_valid


def test_the_catalogue_has_title_publisher_period_licence_and_what_is_protected(public: Path) -> None:
    graph = rdflib.Graph().parse(public / "dcat.jsonld", format="json-ld")
    (release,) = graph.subjects(namespace.RDF.type, namespace.DCAT.Dataset)

    def one(subject: Any, predicate: Any) -> Any:
        (found,) = graph.objects(subject, predicate)
        return found

    assert str(one(release, namespace.DCTERMS.title)) == "toy"
    assert str(one(one(release, namespace.DCTERMS.publisher), namespace.FOAF.name)) == "Office of Counts"
    assert str(one(release, namespace.DCTERMS.license)) == "https://creativecommons.org/publicdomain/zero/1.0/"
    assert str(one(release, namespace.DCAT.landingPage)) == "https://example.org/counts"
    period = one(release, namespace.DCTERMS.temporal)
    assert one(period, namespace.DCAT.startDate) == rdflib.Literal("2019", datatype=namespace.XSD.gYear)
    assert one(period, namespace.DCAT.endDate) == rdflib.Literal("2020-04-01", datatype=namespace.XSD.date)
    said = str(one(one(release, namespace.DCTERMS.provenance), namespace.RDFS.label))
    assert said == json.loads((public / "manifest.json").read_text())["privacy"]["statement"]
    files = {}
    spdx = rdflib.Namespace("http://spdx.org/rdf/terms#")
    for each in graph.objects(release, namespace.DCAT.distribution):
        path = public / str(one(each, namespace.DCTERMS.identifier))
        assert int(one(each, namespace.DCAT.byteSize)) == path.stat().st_size
        assert str(one(one(each, spdx.checksum), spdx.checksumValue)) == file_digest(path)
        files[path.relative_to(public).as_posix()] = str(one(each, namespace.DCAT.mediaType)).rsplit("/", 2)[1:]
    assert files["release.csv"] == ["text", "csv"]
    assert set(files) == {path.relative_to(public).as_posix() for path in written(public)}


def test_croissant_finds_the_data_set_valid_and_reads_its_tables(public: Path) -> None:
    mlcroissant = pytest.importorskip("mlcroissant", reason="it needs a package that has no wheel: not in the lock")
    found = mlcroissant.Dataset(public / "croissant.json")
    assert not found.metadata.ctx.issues.errors
    assert (found.metadata.name, str(found.metadata.date_published)[:10]) == ("toy", "2021-03-01")
    tables = {path if path.parent.suffix != ".parquet" else path.parent for path in public.rglob("*.parquet")}
    paths = {path.relative_to(public).as_posix() for path in tables if path.suffix == ".parquet"}
    named = {re.sub(r"[./_]", "-", path) for path in paths}
    assert {one.id for one in found.metadata.record_sets} == named
    rows = list(found.records("geography-parquet"))
    expected = pd.read_parquet(public / "geography.parquet")
    assert [row["geography-parquet/geoid"].decode() for row in rows] == expected["geoid"].tolist()
    counts = pq.read_table(public / "release.parquet").to_pandas()
    name = "value" if "value" in counts else "count"
    read = [row[f"release-parquet/{name}"] for row in found.records("release-parquet")]
    assert sorted(read) == sorted(counts[name])


@pytest.fixture
def wide_with_any_names(tmp_path: Path, frame: pd.DataFrame) -> Path:
    frame.rename(columns={"adults": 'of age, "any"', "children": "=1/2 Ä"}).to_csv(tmp_path / "table.csv", index=False)
    toml = RUN_TOML.replace('"adults", "children"', '\'of age, "any"\', "=1/2 Ä"')
    (tmp_path / "run.toml").write_text(toml + "[output]\nwide = true\n", encoding="utf-8")
    return pipeline.run(load_config(tmp_path / "run.toml")).public


def test_the_identifiers_of_croissant_are_iris_whatever_columns_are_called(wide_with_any_names: Path) -> None:
    described = json.loads((wide_with_any_names / "croissant.json").read_text(encoding="utf-8"))
    fields = {
        field["@id"]: field["source"]["extract"]["column"] for one in described["recordSet"] for field in one["field"]
    }
    assert all(re.fullmatch(r"[A-Za-z0-9_.%/-]+", one) for one in fields)
    assert fields["release-wide-parquet/of%20age%2C%20%22any%22"] == 'of age, "any"'
    assert fields["release-wide-parquet/%3D1%2F2%20%C3%84_moe"] == "=1/2 Ä_moe"


def test_the_identifiers_of_croissant_are_iris_whatever_areas_are_called(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.to_csv(tmp_path / "table.csv", index=False)
    frame[["state", "county"]].to_csv(tmp_path / "units.csv", index=False)
    pd.DataFrame({"county": frame["county"], "school district": "a"}).to_csv(tmp_path / "areas.csv", index=False)
    spine = '[geography.spine]\nlevels = ["pieces"]\ncap = "none"\nareas = { "school district" = "areas.csv" }\n'
    toml = RUN_TOML.replace("[privacy]", f"{spine}[privacy]").replace("[geography]", '[geography]\nunits = "units.csv"')
    toml = toml[: toml.index("shares")] + toml[toml.index("\n", toml.index("shares")) + 1 :]
    (tmp_path / "run.toml").write_text(toml)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    text = (public / "croissant.json").read_text()
    assert '"@id": "areas/school%20district.csv"' in text
    assert all(re.fullmatch(r"[A-Za-z0-9_.%/:-]+", one) for one in re.findall(r'"@id": "([^"]*)"', text))


def test_croissant_reads_columns_whatever_they_are_called(wide_with_any_names: Path) -> None:
    mlcroissant = pytest.importorskip("mlcroissant", reason="it needs a package that has no wheel: not in the lock")
    rows = list(mlcroissant.Dataset(wide_with_any_names / "croissant.json").records("release-wide-parquet"))
    expected = pq.read_table(wide_with_any_names / "release_wide.parquet").to_pandas()
    assert [row["release-wide-parquet/of%20age%2C%20%22any%22"] for row in rows] == expected['of age, "any"'].tolist()


def test_tables_whose_names_differ_in_a_sign_alone_are_resources_of_their_own(
    tmp_path: Path, frame: pd.DataFrame
) -> None:
    frame.to_csv(tmp_path / "table.csv", index=False)
    recodes = "".join(f'[recodes.age.{name}]\n{name[-1]} = ["adults", "children"]\n' for name in ("x-y", "x_y"))
    toml = RUN_TOML + '[schema]\nage = ["adults", "children"]\n' + recodes + '[output]\ntables = ["x-y", "x_y"]\n'
    (tmp_path / "run.toml").write_text(toml)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    report = Package(str(public / "datapackage.json")).validate()
    assert (report.errors, [task.name for task in report.tasks if not task.valid]) == ([], [])
    described = json.loads((public / "croissant.json").read_text())
    names = [one["@id"] for one in described["recordSet"]]
    assert len(set(names)) == len(names) == len(list(public.rglob("*.parquet")))


def test_without_a_section_the_catalogue_says_what_is_known(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "run.toml").write_text(RUN_TOML.replace('title = "toy"', ""))
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    found = json.loads((public / "dcat.jsonld").read_text())
    assert found["dcterms:title"] == "A release of counts"
    assert {"dcterms:publisher", "dcterms:license", "dcterms:temporal", "dcat:landingPage"} & set(found) == set()


def test_the_section_does_not_decide_the_numbers(tmp_path: Path) -> None:
    prints = []
    for more in ("", CATALOGUE):
        (tmp_path / "run.toml").write_text(RUN_TOML + more)
        prints.append(load_config(tmp_path / "run.toml").fingerprint())
    assert prints[0] == prints[1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('period = "spring"', 'give a year, a month or a day, or two: "2020"'),
        ('period = "2020-13"', "give a year, a month or a day"),
        ('period = "2020/2019"', "give a year, a month or a day"),
        ('url = "example.org"', "give an address"),
        ("publisher = 3", "catalogue.publisher"),
    ],
)
def test_what_no_catalogue_takes_is_refused(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "run.toml").write_text(f"{RUN_TOML}\n[catalogue]\n{line}\n")
    with pytest.raises(ConfigError, match=words):
        load_config(tmp_path / "run.toml")


def test_every_parquet_file_says_its_schema_version(public: Path) -> None:
    for path in (path for path in written(public) if path.suffix == ".parquet"):
        assert pq.read_schema(path).metadata[b"schema version"] == SCHEMA_VERSION.encode()
