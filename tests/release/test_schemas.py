"""The published schemas: what runs of all kinds write is what they describe, and their version is the code's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.places import REPOSITORY, RUN_TOML
from topdown.config import load_config, load_project
from topdown.pipeline import run as pipeline
from topdown.pipeline.project_measurements import project_measurements
from topdown.release.manifest import SCHEMA_VERSION

SCHEMAS = REPOSITORY / "docs" / "schemas"
MANIFEST: dict[str, Any] = json.loads((SCHEMAS / f"manifest-{SCHEMA_VERSION}.json").read_text(encoding="utf-8"))
TABLES: dict[str, Any] = json.loads((SCHEMAS / f"tables-{SCHEMA_VERSION}.json").read_text(encoding="utf-8"))

BOOKS = {"METHODS.md", "README.md", "croissant.json", "csv-metadata.json", "datapackage.json", "dcat.jsonld"}

PRIVACY = RUN_TOML[RUN_TOML.index("[privacy]") :]
RUNS = {
    "geometric": PRIVACY,
    "gaussian": PRIVACY.replace("epsilon = 1.0", 'mechanism = "gaussian"\nepsilon = 1.0\ndelta = 1e-6'),
    "invariants": '[privacy]\nepsilon = 1\nshares = { county = 1 }\ninvariants = ["nation", "state"]',
    "bounded": PRIVACY + '[noise]\nbounds = "truncated"\nupper = 1000\ncalibration = "uncorrected"\n',
    "schema": PRIVACY
    + '[schema]\nage = ["adults", "children"]\n[recodes.age]\nany = { all = ["adults", "children"] }\n',
    "without": PRIVACY + "[projection]\ncross_check = false\n[output]\ncsv = false\n",
    "every table": PRIVACY + "[output]\nwide = true\nestimates_csv = true\n",
    "wide and tables": PRIVACY
    + '[schema]\nage = ["adults", "children"]\n[recodes.age]\nany = { all = ["adults", "children"] }\n'
    + '[output]\nwide = true\ntables = ["any"]\nmargins = { levels = ["county"] }\n',
    "tables": PRIVACY + '[output]\ntables = ["detailed", "total"]\nestimates_csv = true\n',
    "some margins": PRIVACY + '[output]\ntables = ["total"]\nmargins = { levels = ["state"] }\n',
    "no margins": PRIVACY + '[output]\ntables = ["total"]\nmargins = false\n',
    "queries": '[privacy]\nepsilon = 1\n[privacy.shares]\nnation = { total = "1/4" }\nstate = { detailed = "1/4" }\n'
    'county = { detailed = "1/4", any = "1/4" }\n[schema]\nage = ["adults", "children"]\n[recodes.age]\n'
    'any = { all = ["adults", "children"] }\n[output]\ntables = ["age"]\n',
    "replicates": PRIVACY + "[output]\nreplicates = 2\n",
    "replicates of queries": '[privacy]\nepsilon = 1\n[privacy.shares]\nnation = { total = "1/2" }\nstate = 0\n'
    'county = { detailed = "1/2" }\n[schema]\nage = ["adults", "children"]\n[output]\nreplicates = 2\n',
    "ledger": PRIVACY + '[ledger]\npath = "ledger.db"\ndataset = "census"\n',
}


@pytest.fixture(params=RUNS)
def public(request: pytest.FixtureRequest, tmp_path: Path, frame: pd.DataFrame) -> Path:
    frame.assign(label="x").to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "run.toml").write_text(RUN_TOML.replace(PRIVACY, RUNS[request.param]))
    if request.param == "ledger":
        from topdown.privacy.ledger import Ledger

        Ledger(tmp_path / "ledger.db").open_account("census", 1)
    return pipeline.run(load_config(tmp_path / "run.toml")).public


def kind(type_: pa.DataType) -> str:
    if pa.types.is_dictionary(type_):
        return f"dictionary<{type_.value_type}>"
    return str(type_)


def entry(name: str, manifest: dict[str, Any]) -> str:
    """The name under which the schemas describe a release's file."""
    if name.startswith("tables/"):
        end = "_estimates" if "_estimates." in name else ""
        return f"tables/*{end}.{name.rsplit('.', 1)[1]}"
    rows = manifest["release_rows"]
    return name if rows == "every cell" or not name.startswith(("release.", "replicates.")) else f"{name} ({rows})"


def described(name: str, manifest: dict[str, Any], columns: list[str]) -> list[dict[str, Any]]:
    """The columns of a table, with its own in place of "*": cells, attributes or answers; "**": those that follow."""
    known = TABLES["tables"][entry(name, manifest)]
    own = [column for column in columns if column not in {one["name"] for one in known}]
    fixed = [one["name"] for one in known]
    cells = columns.index(fixed[fixed.index("*") + 1]) - fixed.index("*") if fixed[-1] == "**" else len(own)
    there = {"*": own[:cells], "**": own[cells:]}
    return [{**one, "name": cell} for one in known for cell in there.get(one["name"], [one["name"]])]


def require_tables(public: Path) -> None:
    manifest = json.loads((public / "manifest.json").read_text(encoding="utf-8"))
    for path in public.rglob("*.parquet"):
        table = pq.read_table(path)
        expected = []
        for one in described(path.relative_to(public).as_posix(), manifest, table.column_names):
            name = one["also"] if one.get("also") in table.column_names else one["name"]
            if name not in table.column_names and one.get("optional"):
                continue
            expected.append(name)
            assert kind(table.schema.field(name).type) in one["type"].split(" or "), (path.name, name)
            assert one["nullable"] or table[name].null_count == 0, (path.name, name)
        assert table.column_names == expected, path.name
        assert pq.read_schema(path).metadata[b"schema version"] == SCHEMA_VERSION.encode()
    for path in public.rglob("*.csv"):
        header = path.read_text(encoding="utf-8").splitlines()[0].replace('"', "").split(",")
        assert header == pq.read_schema(path.with_suffix(".parquet")).names


def test_what_a_run_writes_is_what_the_schemas_describe(public: Path) -> None:
    manifest = json.loads((public / "manifest.json").read_text(encoding="utf-8"))
    jsonschema.validate(manifest, MANIFEST)
    require_tables(public)
    assert {entry(name, manifest) for name in manifest["files"]} <= {*TABLES["tables"], *BOOKS}


def test_so_is_what_is_derived_from_it(public: Path) -> None:
    path = public.parents[1] / "again.toml"
    path.write_text('[measurements]\npath = "output/public"\n[output]\ndirectory = "again"\n')
    derived = project_measurements(load_project(path)).public
    jsonschema.validate(json.loads((derived / "manifest.json").read_text(encoding="utf-8")), MANIFEST)
    require_tables(derived)


def spoilt(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in manifest.items() if name != "privacy"},
        {**manifest, "seed": 1},
        {**manifest, "schema_version": "2.0"},
        {**manifest, "configuration_sha256": "x"},
        {**manifest, "privacy": {**manifest["privacy"], "epsilon": 0.5}},
        {**manifest, "files": {}},
    ]


def test_the_schema_refuses_what_is_no_manifest(toy_run: Path) -> None:
    manifest = json.loads((pipeline.run(load_config(toy_run)).public / "manifest.json").read_text(encoding="utf-8"))
    for wrong in spoilt(manifest):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, MANIFEST)


def test_the_schemas_are_of_this_version_and_every_object_in_them_is_closed() -> None:
    jsonschema.Draft202012Validator.check_schema(MANIFEST)
    assert TABLES["schema_version"] == MANIFEST["properties"]["schema_version"]["const"] == SCHEMA_VERSION

    def walk(node: Any) -> list[dict[str, Any]]:
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        found = [one for part in inner for one in walk(part)]
        return [node, *found] if isinstance(node, dict) and "properties" in node else found

    assert all(one["additionalProperties"] is False for one in walk(MANIFEST))
