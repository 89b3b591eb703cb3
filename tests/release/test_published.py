"""What a release tells of itself, and what is read back of it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.places import REPOSITORY, RUN_TOML
from topdown.config import load_config
from topdown.errors import ConfigError, DataError
from topdown.machine.files import file_digest
from topdown.pipeline import run as pipeline
from topdown.release import codebook

ALL = RUN_TOML + "[output]\nwide = true\nestimates_csv = true\n"


WIDE = ("release_wide.parquet", "release_wide.csv")


@pytest.fixture
def public(tmp_path: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "run.toml").write_text(ALL)
    return pipeline.run(load_config(tmp_path / "run.toml")).public


@pytest.fixture
def several(tmp_path: Path, frame: pd.DataFrame) -> Path:
    """A release of two queries within limits, with tables."""
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "limits.csv").write_text("geoid,query,answer,lower,upper\n01001,total,total,1,\n")
    shares = "[privacy.shares]\nnation = { total = 0.2 }\nstate = { detailed = 0.3 }\ncounty = { detailed = 0.5 }\n"
    privacy = RUN_TOML.replace("shares = { nation = 0.2, state = 0.3, county = 0.5 }\n", shares)
    output = '[output]\ntables = ["detailed", "total"]\nestimates = true\nestimates_csv = true\n'
    more = f'[bounds]\npath = "limits.csv"\n{output}'
    (tmp_path / "run.toml").write_text(privacy + more)
    return pipeline.run(load_config(tmp_path / "run.toml")).public


@pytest.mark.parametrize("release", ["public", "several"])
def test_every_column_of_every_table_is_in_the_codebook_for_programs(
    release: str, request: pytest.FixtureRequest
) -> None:
    public: Path = request.getfixturevalue(release)
    package = json.loads((public / "datapackage.json").read_text(encoding="utf-8"))
    there = {path.relative_to(public).as_posix() for path in public.rglob("*") if path.is_file()}
    tables = there - {
        "METHODS.md",
        "README.md",
        "datapackage.json",
        "croissant.json",
        "csv-metadata.json",
        "dcat.jsonld",
        "manifest.json",
    }
    assert {one["path"] for one in package["resources"]} == tables
    known = {path for path in tables if not path.startswith("tables/")}
    assert known == set(codebook.FILES) - ({"limits.parquet"} if release == "public" else set(WIDE))
    assert len({one["name"] for one in package["resources"]}) == len(tables)
    for one in package["resources"]:
        path = public / one["path"]
        if path.suffix == ".csv":
            assert one["hash"] == f"sha256:{file_digest(path)}"
            assert one["bytes"] == path.stat().st_size
        names = pq.read_schema(path.with_suffix(".parquet")).names
        fields = {field["name"]: field for field in one["schema"]["fields"]}
        assert list(fields) == names
        assert all(field["description"] for field in fields.values())
        assert fields["geoid"]["type"] == "string"
        assert set(one["schema"]["primaryKey"]) <= set(names)
        table = pq.read_table(path.with_suffix(".parquet")).to_pandas()
        assert not table.duplicated(one["schema"]["primaryKey"]).any()
        text = (public / "METHODS.md").read_text(encoding="utf-8")
        assert f"| `{one['path']}` |" in text
        if "wide" in path.name:
            assert fields["adults"]["unit"] == fields["total"]["unit"] == "count"


def test_the_codebook_in_words_says_what_is_protected_and_how_much_noise_there_is(public: Path) -> None:
    text = (public / "METHODS.md").read_text(encoding="utf-8")
    plan = td.Plan(epsilon=1, shares={"nation": "1/5", "state": "3/10", "county": "1/2"})
    for level in ("nation", "state", "county"):
        assert f"| {level} | detailed | geometric, scale {plan.scale(level)} | {plan.variance(level):.6g} |" in text
    assert "Total: epsilon = 1" in text
    manifest = json.loads((public / "manifest.json").read_text())
    assert manifest["files"]["README.md"]["sha256"] == file_digest(public / "README.md")


def test_a_title_and_names_are_text_and_no_markup(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.rename(columns={"adults": "a|b<script>"}).to_csv(tmp_path / "table.csv", index=False)
    text = RUN_TOML.replace('"adults"', '"a|b<script>"').replace('"toy"', '"<img src=x> *b*"')
    (tmp_path / "run.toml").write_text(text + "[output]\nwide = true\n")
    book = (pipeline.run(load_config(tmp_path / "run.toml")).public / "METHODS.md").read_text()
    assert "# \\<img src=x\\> \\*b\\*" in book
    assert "<script>" not in book


def test_what_has_to_be_known_first_stands_first(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.to_csv(tmp_path / "table.csv", index=False)
    text = RUN_TOML.replace("epsilon = 1.0", "epsilon = 100\naccept_no_protection = true")
    (tmp_path / "run.toml").write_text(text)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    assert (public / "README.md").read_text().split("\n")[2].startswith("**NOT PROTECTED: at level 'nation'")
    package = json.loads((public / "datapackage.json").read_text())
    assert package["description"].startswith("NOT PROTECTED")


# -- read back -------------------------------------------------------------------------------------------------------


def test_a_release_is_read_back_as_it_was_published(public: Path) -> None:
    found = td.read_release(public)
    assert found.geography.levels == ("nation", "state", "county")
    assert found.plan.epsilon == 1
    for thing, name in ((found.release, "release"), (found.estimates, "estimates")):
        table = pq.read_table(public / f"{name}.parquet")
        assert "upper" in table.column_names
        assert thing.to_arrow().replace_schema_metadata(None).equals(table.replace_schema_metadata(None))
    assert found.measurements.fit_for_release
    assert found.manifest["title"] == "toy"


def test_the_total_over_cells_is_their_sum_and_so_is_its_variance(public: Path) -> None:
    found = td.read_release(public)
    whole = pd.read_parquet(public / "estimates.parquet").groupby("geoid", sort=False)
    total = found.estimates.total().to_frame().set_index("geoid")
    for name in ("unbiased", "variance", "non_negative"):
        np.testing.assert_allclose(total[name], whole[name].sum().loc[total.index])
    assert not {"sd", "lower", "upper"} & set(total)  # intervals do not add up


def test_the_wide_table_is_the_long_one_turned(public: Path) -> None:
    wide = pd.read_parquet(public / "release_wide.parquet")
    counts = ["adults", "children", "total"]
    margins = [f"{count}_{end}" for count in counts for end in ("lower", "upper", "moe")]
    assert list(wide) == ["geoid", "level", "parent", "name", *counts, *margins]
    long = pd.read_parquet(public / "release.parquet").pivot_table(
        index="geoid", columns="cell", values="value", observed=True
    )
    assert (wide.set_index("geoid")[["adults", "children"]] == long.loc[wide["geoid"]]).all(axis=None)
    assert (wide["total"] == wide["adults"] + wide["children"]).all()
    assert wide["parent"].isna().tolist() == [True] + [False] * 5
    found = td.read_release(public)
    pd.testing.assert_frame_equal(found.wide(), wide.drop(columns=margins))
    long = pd.read_parquet(public / "release.parquet")
    for cell in counts[:2]:
        mine = long[long["cell"] == cell]
        for end in ("lower", "upper", "moe"):
            assert wide[f"{cell}_{end}"].tolist() == mine[end].tolist()
    of_total = td.margins(found.measurements, found.release, queries=["total"])
    for table in (wide, long[long["cell"] == "adults"]):
        assert table["total"].tolist() == (wide["adults"] + wide["children"]).tolist()
        assert (table["total_lower"] <= table["total"]).all()
        assert (table["total"] <= table["total_upper"]).all()
        # The interval of the total holds the released total.
        assert table["total_lower"].tolist() == of_total["lower"].tolist()
        assert table["total_upper"].tolist() == of_total["upper"].tolist()
    text = pd.read_csv(public / "release_wide.csv", dtype={"geoid": str, "parent": str})
    assert text["total"].tolist() == wide["total"].tolist()
    estimates = pd.read_csv(public / "estimates.csv", dtype={"geoid": str})
    assert np.allclose(estimates["unbiased"], pd.read_parquet(public / "estimates.parquet")["unbiased"])


@pytest.mark.parametrize("cell", ["geoid", "level", "parent", "name", "total"])
def test_a_cell_called_as_a_column_of_the_wide_table_is_refused_before_anything_is_drawn(
    tmp_path: Path, frame: pd.DataFrame, cell: str
) -> None:
    frame.rename(columns={"adults": cell}).to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "run.toml").write_text(ALL.replace('"adults"', f'"{cell}"'))
    with pytest.raises(ConfigError, match=f"cell '{cell}' has the same name as another column of the wide table"):
        load_config(tmp_path / "run.toml")


def test_invariants_and_bounds_are_read_back(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.to_csv(tmp_path / "table.csv", index=False)
    shares, exact = "{ nation = 0.2, state = 0.3, county = 0.5 }", '{ county = 1 }\ninvariants = ["nation", "state"]'
    changes = [(shares, exact), ("[privacy]", '[noise]\nbounds = "truncated"\n[privacy]')]
    for k, (old, new) in enumerate(changes):
        (tmp_path / "run.toml").write_text(RUN_TOML.replace(old, new))
        found = td.read_release(pipeline.run(load_config(tmp_path / "run.toml"), tmp_path / f"out{k}").public)
        assert found.release.exact[:3].all() == (k == 0)
        assert found.estimates.linear_name == ("unbiased" if k == 0 else "least_squares")


def test_a_release_that_was_changed_is_not_read(public: Path) -> None:
    (public / "README.md").write_text("another")
    with pytest.raises(DataError, match=r"README.md has 7 bytes instead of"):
        td.read_release(public)


# -- the worked examples ---------------------------------------------------------------------------------------------


def test_the_examples_of_the_guide_run_and_keep_leading_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(REPOSITORY / "pipelines" / "us_counties.toml")
    less = {
        "projection": config.projection.model_copy(update={"cross_check": False}),
        "output": config.output.model_copy(update={"replicates": 2}),
    }
    config = config.model_copy(update=less)
    pipeline.run(config, tmp_path)
    asked = load_config(REPOSITORY / "pipelines" / "age_by_sex.toml")
    asked = asked.model_copy(update={"output": asked.output.model_copy(update={"replicates": 2})})
    several = pipeline.run(asked, tmp_path / "several").public
    square = [[0, 0], [0, 1], [1, 1], [0, 0]]
    outline = {"type": "Feature", "id": "01001", "geometry": {"type": "Polygon", "coordinates": [square]}}
    (tmp_path / "us_counties.geojson").write_text(json.dumps({"features": [outline]}))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    text = (REPOSITORY / "docs" / "using_a_release.md").read_text(encoding="utf-8")
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) == 10
    for block in blocks:
        if "age * sex" in block or "age_by_sex" in block:  # of several queries, which the counties' release has not
            monkeypatch.chdir(several.parent)
            own = {"pd": pd, "found": td.read_release(several)}
            exec(compile(block, "using_a_release.md", "exec"), own)
            monkeypatch.chdir(tmp_path)
            if "ratios" in own:
                shares_of_women = own["ratios"].to_numpy()  # type: ignore[attr-defined]
                assert shares_of_women.shape == (8, 2)
                assert ((shares_of_women > 0.45) & (shares_of_women < 0.55)).all()
            continue
        exec(compile(block, "using_a_release.md", "exec"), names)
    assert names["ranks"].min().min() == 1  # type: ignore[attr-defined]
    shares = names["shares"].df()  # type: ignore[attr-defined]
    assert len(shares) > 3_000
    assert shares["geoid"].str.len().eq(5).all()
    assert math.isclose(names["counties"]["share"].mean(), 0.09, abs_tol=0.02)  # type: ignore[index]
    by_county = names["by_county"].collect().sort("geoid")  # type: ignore[attr-defined]
    assert by_county.height == len(set(by_county["geoid"])) == 3_140
    assert by_county.filter(by_county["share"].is_not_nan()).select("geoid").to_series().to_list() == sorted(
        shares["geoid"]
    )
    text = names["text"]
    assert text.filter(text["level"] == "county")["geoid"].str.len_chars().unique().to_list() == [5]  # type: ignore[attr-defined, index]
    regions = names["mine"].table  # type: ignore[attr-defined]
    assert regions["region"].fillna("").tolist() == ["east", "west", ""]
    assert Path("map.html").stat().st_size > 100_000


def test_the_margins_are_those_of_the_measurements_and_the_release(public: Path) -> None:
    found = td.read_release(public)
    expected = td.margins(found.measurements, found.release, confidence=0.9)
    released, estimates = (pd.read_parquet(public / f"{name}.parquet") for name in ("release", "estimates"))
    for table in (released, estimates):
        for name in ("lower", "upper"):
            assert table[name].tolist() == expected[name].tolist()
    assert estimates["sd"].tolist() == expected["sd"].tolist()
    assert (released["moe"] == (released["upper"] - released["lower"]) / 2).all()
    assert ((released["lower"] <= released["value"]) & (released["value"] <= released["upper"])).all()
    said = found.manifest["margins"]
    assert said["confidence"] == 0.9
    assert len(said["rule"]) == 5
    words = (public / "METHODS.md").read_text()
    assert "## Margins of error" in words
    assert said["statement"] in words


@pytest.mark.parametrize(
    "more", ['[noise]\nbounds = "truncated"\n', '[schema]\nage = ["adults", "children"]\n[output]\nestimates = false\n']
)
def test_a_release_without_margins_says_why(tmp_path: Path, frame: pd.DataFrame, more: str) -> None:
    frame.to_csv(tmp_path / "table.csv", index=False)
    queries = RUN_TOML.replace("county = 0.5 }", "county = { total = 0.2, detailed = 0.3 } }")
    (tmp_path / "run.toml").write_text((queries if "schema" in more else RUN_TOML) + more)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    said = json.loads((public / "manifest.json").read_text())["margins"]
    assert said["confidence"] is None
    assert said["rule"] == []
    assert ("several queries" if "schema" in more else "bounded noise") in said["statement"]
    assert not any("upper" in pq.read_schema(path).names for path in public.glob("*.parquet"))
    found = td.read_release(public)
    assert "upper" not in found.release.to_frame()
    assert found.estimates is None or "upper" not in found.estimates.to_frame()


def test_another_confidence_makes_longer_intervals(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "run.toml").write_text(RUN_TOML + "[output]\nconfidence = 0.99\n")
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    found = td.read_release(public)
    assert found.manifest["margins"]["confidence"] == 0.99
    released = pd.read_parquet(public / "release.parquet")
    expected = td.margins(found.measurements, found.release, confidence=0.99)
    assert released["upper"].tolist() == expected["upper"].tolist()
    assert (released["upper"] >= td.margins(found.measurements, found.release)["upper"]).all()
    (tmp_path / "run.toml").write_text(RUN_TOML + "[output]\nconfidence = 95\n")
    with pytest.raises(ConfigError, match=r"output\.confidence"):
        load_config(tmp_path / "run.toml")
