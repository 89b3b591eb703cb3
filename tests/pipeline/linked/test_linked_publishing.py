"""Two linked tables: their plans and what both guarantee, what is published of them, and what a receiver finds."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.linked import configured
from support.places import SMALL_DATA, Command
from topdown.config import load_linked
from topdown.config.linked_settings import LinkedConfig
from topdown.errors import BudgetError, ConfigError, CountsError, DataError
from topdown.linked.record_faults import LinkedRows
from topdown.machine.files import file_digest
from topdown.machine.progress import Silent
from topdown.microdata.linked_microdata import check_linked, read_linked
from topdown.pipeline.linked.linked_derive import LinkedDrawn, LinkedSolved, begun_linked, publish_linked, write_records
from topdown.pipeline.linked.linked_draw import check_linked_tables, draw_linked
from topdown.privacy.ledger import Ledger
from topdown.projection.check.certificate import Certificate
from topdown.release import linked_release
from topdown.release.linked_release import verify_linked
from topdown.release.whole_counts import SparseCounts

CERTIFICATE = Certificate(0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0)


def true_rows(geography: td.Geography, config: LinkedConfig) -> LinkedRows:
    """The confidential records, as whoever solved without any error would deal them."""
    place = {code: k for k, code in enumerate(geography.geoid[geography.level_slice("block")])}
    found = {}
    for name in ("households", "persons"):
        read = pq.read_table(SMALL_DATA / "ri_linked" / f"{name}.parquet").to_pandas()
        schema = config.schema_of(name)
        places = [
            read[one.name].map({c: k for k, c in enumerate(one.categories)}).to_numpy() for one in schema.attributes
        ]
        found[name] = read, read["geoid"].map(place).to_numpy(), np.ravel_multi_index(places, schema.shape)
    key = {code: k for k, code in enumerate(found["households"][0]["household"])}
    of = found["persons"][0]["household"].map(key).fillna(-1).to_numpy(np.int64)
    return LinkedRows(*found["households"][1:], *found["persons"][1:], of)


@dataclass(frozen=True)
class Written:
    config: LinkedConfig
    drawn: LinkedDrawn
    directory: Path


def solved_as_counted(config: LinkedConfig, drawn: LinkedDrawn) -> LinkedSolved:
    """The truth as a solution."""
    counts = check_linked_tables(config).counts
    tagged = SparseCounts(*(np.asarray(one, np.int64) for one in counts.held))
    return LinkedSolved.of(config, drawn, tagged, CERTIFICATE, true_rows(counts.geography, config))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A release of the small tables, whose solution is the truth."""
    folder = tmp_path_factory.mktemp("linked")
    config = load_linked(configured(folder))
    with ExitStack() as held:
        drawn, there = draw_linked(config, folder / "out", held, Silent())
        assert not there
        solved = solved_as_counted(config, drawn)
        with begun_linked(drawn, folder / "out" / "public", None) as begun:
            publish_linked(config, drawn, solved, begun, Silent())
        write_records(config, drawn, solved, folder / "out", Silent())
    return Written(config, drawn, folder / "out")


def test_each_table_is_a_release_of_its_own(written: Written) -> None:
    public = written.directory / "public"
    assert sorted(path.name for path in public.iterdir()) == ["households", "link.json", "persons", "units.parquet"]
    for name, total, tables in (
        ("households", 2500, {"size", "type"}),
        ("persons", 6696, {"hispanic * race", "relationship"}),
    ):
        assert "release.parquet" in td.verify_release(public / name).files
        release = td.read_release(public / name).release
        assert release.answers("state", "total").tolist() == [[total]]
        manifest = json.loads((public / name / "manifest.json").read_text())
        assert manifest["notices"][0].startswith("This table was counted from the same records as that of ")
        assert manifest["privacy"]["total"] == "64/25"
        assert set(manifest["tables"]) == tables


def test_what_both_guarantee_is_beside_them(written: Written) -> None:
    said = json.loads((written.directory / "public" / "link.json").read_text())
    assert said["guarantee"] == written.drawn.guarantee.to_dict()
    assert said["guarantee"]["largest_household"] == 10
    by_name = {row["name"]: Fraction(row["loss"]["rho"]) for row in said["guarantee"]["neighbours"]}
    assert by_name["attributes"] == Fraction("5.12")
    assert by_name["move"] == Fraction("10.24")
    assert by_name["household replaced"] == 101 * Fraction("2.56")
    assert [entry["largest_household"] for entry in said["guarantee"]["profile"]] == list(range(1, 11))
    assert any("One household with at most 10 persons" in line for line in said["statement"])


def test_the_noise_is_that_of_the_plans(written: Written) -> None:
    """Half of the budget over five levels and five or four queries, of which one is detailed; sigma^2 = 1/rho."""
    for name, queries in (("households", 5), ("persons", 4)):
        measured = written.drawn.measurements[name]
        variances = np.array([float(one.variance[0]) for one in measured.others.values()])
        assert len(variances) == 5 * (queries - 1)
        assert np.allclose(variances, 5 * queries / 2.56, rtol=1e-3)


def test_a_receiver_verifies_both(written: Written, topdown: Command) -> None:
    found = verify_linked(written.directory / "public")
    assert found.impossible == 0
    assert set(found.results["level"]) == {"state", "county", "tract", "block group", "block"}
    done = topdown("verify", written.directory / "public")
    assert done.returncode == 0
    assert "SHA-256 of link.json is " + found.sha256 in done.stdout


def test_the_records_are_those_of_both(written: Written, topdown: Command) -> None:
    microdata = read_linked(written.directory / "microdata")
    assert check_linked(microdata).impossible == 0
    done = topdown("verify", written.directory / "microdata")
    assert done.returncode == 0
    assert "ok        the records, tabulated, are the releases of both tables in public/ beside them" in done.stdout


@pytest.fixture
def copied(written: Written, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written.directory / "public", tmp_path / "public"))


def test_a_table_of_another_release_is_found(copied: Path) -> None:
    link = json.loads((copied / "link.json").read_text())
    link["tables"]["persons"]["manifest_sha256"] = "0" * 64
    (copied / "link.json").write_text(json.dumps(link))
    with pytest.raises(DataError, match=r"persons: is not the table that link\.json names"):
        verify_linked(copied)


@pytest.mark.parametrize(
    ("field", "value"),
    [("guarantee", None), ("guarantee", {}), ("statement", ["One person: rho = 1/100"]), ("invariants", [])],
)
def test_a_guarantee_that_does_not_follow_from_the_budgets_is_found(copied: Path, field: str, value: object) -> None:
    link = json.loads((copied / "link.json").read_text())
    (copied / "link.json").write_text(json.dumps(link | {field: value}))
    with pytest.raises(DataError, match=rf"link\.json: its {field} does not follow from the budgets of both tables"):
        verify_linked(copied)


def test_sentences_of_another_version_are_its_own(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = json.loads((copied / "link.json").read_text())
    link["guarantee"]["neighbours"][0]["differ"] = link["statement"][0] = "in other words"
    (copied / "link.json").write_text(json.dumps(link))
    with pytest.raises(DataError, match=r"link\.json: its statement does not follow"):
        verify_linked(copied)
    monkeypatch.setattr(linked_release, "version_of", lambda: "9.9")
    assert verify_linked(copied).sha256


def test_a_smaller_guarantee_than_the_budgets_give_is_found(copied: Path) -> None:
    link = json.loads((copied / "link.json").read_text())
    link["guarantee"]["rho_persons"] = "1/100"
    (copied / "link.json").write_text(json.dumps(link))
    with pytest.raises(DataError, match=r"link\.json: its guarantee does not follow"):
        verify_linked(copied)


def test_units_that_are_not_what_was_written(copied: Path) -> None:
    with (copied / "units.parquet").open("ab") as file:
        file.write(b" ")
    with pytest.raises(DataError, match=r"units\.parquet: is not the file that link\.json lists"):
        verify_linked(copied)


def test_a_release_with_more_households_than_units_is_refused(copied: Path) -> None:
    table = pq.read_table(copied / "units.parquet").to_pandas()
    table.assign(units=0).to_parquet(copied / "units.parquet", index=False)
    link = json.loads((copied / "link.json").read_text())
    link["files"]["units.parquet"]["sha256"] = file_digest(copied / "units.parquet")
    (copied / "link.json").write_text(json.dumps(link))
    with pytest.raises(DataError, match="state '44': has more households than units"):
        verify_linked(copied)


def test_public_numbers_of_units_that_do_not_add_up_are_refused(copied: Path) -> None:
    table = pq.read_table(copied / "units.parquet").to_pandas()
    table.loc[0, "units"] += 1000
    table.to_parquet(copied / "units.parquet", index=False)
    link = json.loads((copied / "link.json").read_text())
    link["files"]["units.parquet"]["sha256"] = file_digest(copied / "units.parquet")
    (copied / "link.json").write_text(json.dumps(link))
    with pytest.raises(DataError, match=r"state '44': 'units' is not the sum of its children's in units\.parquet"):
        verify_linked(copied)


def test_what_is_not_of_the_release_is_refused(copied: Path, written: Written, tmp_path: Path) -> None:
    (copied / ".DS_Store").write_text("of a file manager")
    verify_linked(copied)
    with pytest.raises(DataError, match="it holds a release of 2 tables; give the folder of one of them: 'households'"):
        td.read_release(copied)
    (copied / "persons.csv").write_text("household,geoid")
    with pytest.raises(DataError, match=r"persons\.csv: is no file of the release"):
        verify_linked(copied)
    records = Path(shutil.copytree(written.directory / "microdata", tmp_path / "microdata"))
    (records / "households" / ".DS_Store").write_text("of a file manager")
    read_linked(records)
    (records / "households" / "extra.csv").write_text("household,geoid")
    with pytest.raises(DataError, match=r"extra\.csv: is no file of the microdata"):
        read_linked(records)


def test_records_of_other_numbers_of_units_are_refused(written: Written, tmp_path: Path, topdown: Command) -> None:
    """A vacant unit has no attribute, and is in no cell of the release."""
    folder = Path(shutil.copytree(written.directory, tmp_path / "out"))
    path = folder / "microdata" / "households" / "part-00000.parquet"
    table = pq.read_table(path)
    vacant = table["size"].is_null()
    geoid = table["geoid"].filter(vacant)[0].as_py()
    pq.write_table(table.filter(pc.invert(vacant)), path)
    inventory = json.loads((folder / "microdata" / "_manifest.json").read_text())
    inventory["files"]["households/part-00000.parquet"]["sha256"] = file_digest(path)
    (folder / "microdata" / "_manifest.json").write_text(json.dumps(inventory))
    done = topdown("verify", folder / "microdata")
    assert done.returncode == DataError.exit_code
    assert f"block '{geoid}': has" in done.stderr
    assert "units, and the records of households are of" in done.stderr


def test_a_run_that_is_started_again_draws_the_same(written: Written) -> None:
    with ExitStack() as held:
        again, there = draw_linked(written.config, written.directory, held, Silent())
    assert there
    for name, measured in written.drawn.measurements.items():
        for key, answers in measured.others.items():
            assert np.array_equal(answers.values, again.measurements[name].others[key].values)


def test_noise_of_both_tables_is_independent(written: Written) -> None:
    """Totals at blocks: of 103 blocks the noises of both tables have no correlation beyond chance."""
    level = ("block", "total")
    truth = check_linked_tables(written.config).counts
    noise = []
    for name in ("households", "persons"):
        values = truth.of_table(name)
        exact = values.answers(td.Query.parse("total", values.schema), truth.geography.level_slice("block"))
        noise.append((written.drawn.measurements[name].others[level].values - exact)[:, 0])
    assert abs(np.corrcoef(noise)[0, 1]) < 0.5
    assert not np.array_equal(noise[0], noise[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('households = "1/2" }', 'households = "1/3" }'), "privacy.shares add up to 5/6 over both tables"),
        (('"hhispanic * hrace", "detailed"]', '"hhispanic * hrace"]'), "'detailed' of the table 'households' has no"),
        (('persons = "1/2"', 'persons = { block = "1/2" }'), "level 'state': 'detailed' of the table 'persons' has no"),
        (('"type", "hhispanic', '"size", "hhispanic'), r"privacy\.queries\.households names 'size' twice"),
        (("{ household = 10 }", "{ household = 0 }"), "units: household = 0; give 1 or more"),
        (("{ household = 10 }", "{ household = 1001 }"), "units: household = 1001; give at most 1,000"),
        (("{ household = 10 }", f"{{ household = {10**20} }}"), "units: household = 1000.*; give at most 1,000"),
        (("{ household = 10 }", '"family"'), "units has 'family'; give \"person\""),
        (("{ household = 10 }]", "{ household = 10 }, { household = 7 }]"), "give \"person\", once, and"),
        (("{ household = 10 }]", "]"), "'7\\+' is open, and how many one may have at most is not stated"),
        (('open = "7+"', 'open = "7+"\nlargest = 12'), "link.members_total.largest is 12, and privacy.units"),
        (("[schemas.persons]", "[schemas.people]"), "unknown table of \\[schemas\\]: 'persons'"),
        (('"households: size"', '"households: sizes"'), "sizes"),
        (('"households: size"', '"households: size + vacant"'), r"'households: size \+ vacant' has an answer for"),
        (("[schemas.persons]", '[geography.spine]\nlevels = ["tract"]\n[schemas.persons]'), "take it out"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_meant(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, BudgetError), match=message):
        check_linked_tables(load_linked(configured(tmp_path, change)))
    assert not (tmp_path / "persons_and_households_small").exists()


def test_without_a_largest_household_nothing_is_guaranteed_to_households(tmp_path: Path) -> None:
    changes = (("{ household = 10 }]", "]"), ('open = "7+"', 'open = "7+"\nlargest = 10'))
    guarantee = check_linked_tables(load_linked(configured(tmp_path, *changes))).guarantee
    assert guarantee.most is None
    assert "One household: no guarantee" in "\n".join(guarantee.describe())


def test_the_largest_household_is_the_largest_of_closed_sizes_too(tmp_path: Path) -> None:
    """Otherwise households would be accepted to which nothing is guaranteed."""
    path = configured(tmp_path, ('open = "7+"\n', ""))
    path.write_text(path.read_text(encoding="utf-8").replace('"7+"', '"7-12"'), encoding="utf-8")
    with pytest.raises(ConfigError, match="category '7-12' of 'size' has up to 12, and at most 10 is stated"):
        check_linked_tables(load_linked(path))


def test_bad_tables_are_refused_before_anything_is_written(tmp_path: Path, topdown: Command) -> None:
    path = configured(tmp_path)
    persons = pd.read_parquet(tmp_path / "persons.parquet")
    spouse = persons.index[persons["relationship"] == "spouse"][0]
    persons.loc[spouse, "relationship"] = "householder"
    persons.to_parquet(tmp_path / "persons.parquet", index=False)
    done = topdown("check", path)
    assert done.returncode == CountsError.exit_code
    assert "one household has more than one householder (row " in done.stderr
    assert not (tmp_path / "persons_and_households_small").exists()


def test_a_confidential_table_is_no_list_of_units(tmp_path: Path) -> None:
    change = ('[geography]\nunits = "blocks.csv"', '[geography]\nunits = "households.parquet"')
    with pytest.raises(ConfigError, match="the public list of units is a confidential table itself"):
        check_linked_tables(load_linked(configured(tmp_path, change)))


def test_the_ledger_is_charged_for_either_unit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    path = configured(tmp_path, ("[projection]", '[ledger]\npath = "ledger.db"\ndataset = "census"\n\n[projection]'))
    ledger.open_account("census", 1000, "rho", unit="person", neighbours="substitute")
    config = load_linked(path)
    with ExitStack() as held:
        drawn, _ = draw_linked(config, tmp_path / "one", held, Silent())
    assert ledger.account("census").spent == drawn.guarantee.total("person") == Fraction("10.24")
    path.write_text(path.read_text().replace('"census"', '"census by household"'))
    unit = drawn.guarantee.unit_name("household")
    ledger.open_account("census by household", 1000, "rho", unit=unit, neighbours="substitute")
    with ExitStack() as held:
        draw_linked(load_linked(path), tmp_path / "two", held, Silent())
    assert ledger.account("census by household").spent == drawn.guarantee.total("household")
    ledger.open_account("small", 5, "rho", unit="person", neighbours="substitute")
    path.write_text(path.read_text().replace('"census by household"', '"small"'))
    with ExitStack() as held, pytest.raises(BudgetError, match="beyond the total of 5"):
        draw_linked(load_linked(path), tmp_path / "three", held, Silent())
    assert not (tmp_path / "three" / "public").exists()


def test_a_zip_file_of_both_tables_is_verified_as_the_folder_is(
    written: Written, tmp_path: Path, topdown: Command
) -> None:
    public = written.directory / "public"
    assert topdown("export", public, "--format", "zip", "--output", tmp_path / "zip").returncode == 0
    shutil.make_archive(str(tmp_path / "flat"), "zip", public)
    there = topdown("verify", public)
    assert there.returncode == 0
    for path in (tmp_path / "zip" / "release.zip", tmp_path / "flat.zip"):
        done = topdown("verify", path)
        assert (done.returncode, done.stdout, done.stderr) == (0, there.stdout, "")
    shutil.copytree(public, tmp_path / "cut")
    (tmp_path / "cut" / "persons" / "release.csv").unlink()
    shutil.make_archive(str(tmp_path / "cut"), "zip", tmp_path / "cut")
    done = topdown("verify", tmp_path / "cut.zip")
    assert done.returncode == DataError.exit_code
    assert f"{tmp_path / 'cut.zip'}/persons: release.csv is missing" in done.stderr
    assert topdown("export", tmp_path / "cut", "--format", "zip", "--output", tmp_path / "no").returncode == 3


def test_a_ledger_that_lacks_the_record_of_a_complete_release_is_not_used(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    path = configured(tmp_path, ("[projection]", '[ledger]\npath = "ledger.db"\ndataset = "census"\n\n[projection]'))
    ledger.open_account("census", 1000, "rho", unit="person", neighbours="substitute")
    config, public = load_linked(path), tmp_path / "out" / "public"
    with ExitStack() as held:
        drawn, _ = draw_linked(config, tmp_path / "out", held, Silent())
        with begun_linked(drawn, public, None) as begun:
            publish_linked(config, drawn, solved_as_counted(config, drawn), begun, Silent())
    with ExitStack() as held:
        assert draw_linked(config, tmp_path / "out", held, Silent())[1]
    ledger.path.unlink()
    ledger.open_account("census", 1000, "rho", unit="person", neighbours="substitute")
    with ExitStack() as held, pytest.raises(BudgetError, match=r"does not hold the record .*households.manifest\.json"):
        draw_linked(config, tmp_path / "out", held, Silent())
    assert ledger.account("census").spent == 0
