"""Bad linked tables by the command line: one sentence with the unit, before the ledger is touched, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from support.linked import configured
from support.places import Command
from topdown.errors import BudgetError, ConfigError, CountsError
from topdown.privacy.ledger import Ledger


@dataclass
class Tables:
    households: pd.DataFrame
    persons: pd.DataFrame
    blocks: pd.DataFrame

    def household(self, **attributes: str) -> int:
        """The first household with these attributes, as a row."""
        return int(self.households.index[(self.households[list(attributes)] == pd.Series(attributes)).all(axis=1)][0])

    def member(self, household: int, relationship: str) -> int:
        """A person of a household, as a row."""
        of = self.persons["household"] == self.households.loc[household, "household"]
        return int(self.persons.index[of & (self.persons["relationship"] == relationship)][0])

    def write(self, folder: Path) -> None:
        self.households.to_parquet(folder / "households.parquet", index=False)
        self.persons.to_parquet(folder / "persons.parquet", index=False)
        self.blocks.to_csv(folder / "blocks.csv", index=False)


def _no_householder(tables: Tables) -> str:
    home = tables.household(type="married, without")
    tables.persons = tables.persons.drop(index=tables.member(home, "householder"))
    return f"{_unit(tables.households, home)}: one household has no householder (row {home} of households)"


def _two_householders(tables: Tables) -> str:
    home = tables.household(type="married, without")
    tables.persons.loc[tables.member(home, "spouse"), "relationship"] = "householder"
    said = "one household has more than one householder"
    return f"{_unit(tables.households, home)}: {said} (row {home} of households)"


def _another_size(tables: Tables) -> str:
    home = tables.household(size="2", type="married, without")
    tables.households.loc[home, "size"] = "3"
    said = "'size' of one household does not fit its members, who are fewer"
    return f"{_unit(tables.households, home)}: {said} (row {home} of households)"


def _larger_than_any(tables: Tables) -> str:
    home = tables.household(size="7+")
    row = tables.persons[tables.persons["household"] == tables.households.loc[home, "household"]].iloc[[-1]]
    more = [row.assign(relationship="other in household")] * 10
    tables.persons = pd.concat([tables.persons, *more], ignore_index=True)
    said = "one household has more members than any may have"
    return f"{_unit(tables.households, home)}: {said} (row {home} of households)"


def _nowhere(tables: Tables) -> str:
    home = tables.household(type="married, without")
    spouse = tables.member(home, "spouse")
    tables.persons.loc[spouse, "household"] = ""
    said = "is in no household and in no facility"
    return f"{_unit(tables.persons, spouse)}: {said} (row {spouse} of persons)"


def _facility_that_is_not_there(tables: Tables) -> str:
    block = tables.persons.index[tables.persons["household"] == ""][0]
    unit = _unit(tables.persons, int(block))
    tables.blocks["other noninstitutional"] = 0
    what = "'other noninstitutional', and in the table of what is public it has no 'other noninstitutional'"
    return f"{unit}: has persons in {what}"


def _facility_of_nobody(tables: Tables) -> str:
    tables.blocks.loc[0, "nursing"] = 1
    what = "'nursing' than facilities of it in the table of what is public"
    return f"block '{tables.blocks['geoid'][0]}': has fewer persons in {what}"


def _more_households_than_units(tables: Tables) -> str:
    home = tables.household(type="married, without")
    here = tables.blocks["geoid"] == tables.households.loc[home, "geoid"]
    tables.blocks.loc[here, "units"] = 0
    said = "has more households than units in the table of what is public"
    return f"{_unit(tables.households, home)}: {said}"


def _nobody_can_hold(tables: Tables) -> str:
    home = tables.household(size="2", type="married, without")
    tables.persons.loc[tables.member(home, "spouse"), "relationship"] = "other in household"
    said = "one household has fewer members 'spouse' than its attributes allow"
    return f"{_unit(tables.households, home)}: {said} (row {home} of households)"


def _cell_that_cannot_be(tables: Tables) -> str:
    home = tables.household(size="1")
    tables.households.loc[home, "type"] = "married, without"
    return f"{_unit(tables.households, home)}: "


def _another_householder(tables: Tables) -> str:
    home = tables.household(hrace="White")
    tables.households.loc[home, "hrace"] = "Black"
    head = tables.member(home, "householder")
    said = "the householder is not whom the attributes of the household describe"
    return f"{_unit(tables.households, home)}: {said} (row {head} of persons)"


def _another_geography(tables: Tables) -> str:
    code = tables.households["geoid"].iloc[-1]
    first = int(tables.households.index[tables.households["geoid"] == code][0])
    tables.blocks = tables.blocks[tables.blocks["geoid"] != code]
    return f"row {first} of households: unit "


def _unit(table: pd.DataFrame, row: int) -> str:
    return f"block '{table.loc[row, 'geoid']}'"


@pytest.mark.parametrize(
    "spoilt",
    [
        _no_householder,
        _two_householders,
        _another_size,
        _larger_than_any,
        _nowhere,
        _facility_that_is_not_there,
        _facility_of_nobody,
        _more_households_than_units,
        _nobody_can_hold,
        _cell_that_cannot_be,
        _another_householder,
        _another_geography,
    ],
)
def test_bad_tables(spoilt: Callable[[Tables], str], tmp_path: Path, topdown: Command) -> None:
    path = configured(tmp_path, ("[projection]", '[ledger]\npath = "ledger.db"\ndataset = "census"\n\n[projection]'))
    Ledger(tmp_path / "ledger.db").open_account("census", 1000, "rho", unit="person", neighbours="substitute")
    tables = Tables(
        *(pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("households", "persons")),
        pd.read_csv(tmp_path / "blocks.csv", dtype={"geoid": str}),
    )
    said = spoilt(tables)
    tables.write(tmp_path)
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    done = topdown("run", path, "--quiet")
    assert done.returncode == CountsError.exit_code
    assert done.stderr.count("error:") == 1
    assert said in " ".join(done.stderr.split()), done.stderr
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[projection]", '[tied]\npath = "public"\n\n[projection]'), "unknown key tied"),
        (('persons = "persons.parquet"', 'persons = "households.parquet"'), "relationship"),
        (("per = { \"type in [married*]\" = 1 }", 'per = { "type in [divorced*]" = 1 }'), "divorced"),
        (("per = { \"type in [married*]\" = 1 }", 'per = { "type in [married*]" = 12 }'), "spouse"),
        (('rho = "5.12"', 'rho = "5.12"\nmechanism = "geometric"'), "known of Gaussian noise alone"),
        (('rho = "5.12"', 'rho = "0"'), "error: rho is 0; give a number above 0"),
        (('rho = "5.12"', 'epsilon = "5"'), "epsilon: two linked tables have a budget in rho"),
        (('method = "top-down"', 'method = "top-down"\nweights = "uniform"'), "projection.weights: a release of two"),
        (('method = "top-down"', 'method = "top-down"\norder = []'), "projection.order: a release of two"),
        (('method = "top-down"', 'upward = "from nowhere"'), "unknown level of upward 'nowhere'"),
        (('method = "top-down"', 'upward = "from block"'), "'block' is the lowest level"),
        (('method = "top-down"', 'method = "top-down"\nupward = "from tract"'), "has no upward pass"),
        (("linked_microdata = true", "replicates = 3"), "output.replicates: a release of two"),
        (("linked_microdata = true", 'style = "acs"'), "output.style: a release of two"),
        (("linked_microdata = true", 'exports = ["sdmx"]'), "output.exports: a release of two"),
        (("linked_microdata = true", "page = true"), "output.page: a release of two"),
        (("[output]", '[exports]\nquery = "total"\n\n[output]'), "exports: a release of two"),
        (("[link]\n", '[link]\nhouseholds = "../evil"\n'), "table '../evil': a folder of the release has this name"),
        (("[link]\n", '[link]\nhouseholds = "units.parquet"\n'), "table 'units.parquet': a folder of the release"),
        (("[link]\n", '[link]\nhouseholds = ""\n'), "table '': a folder of the release has this name"),
        (
            ('tables = ["persons: hisp', 'tables = ["persons: race * hispanic", "persons: hisp'),
            "'persons: hispanic * race' is asked for twice; name it once",
        ),
        (("[output]", '[page]\ngeometry = "a.geojson"\n\n[output]'), "page: a release of two"),
    ],
)  # fmt: skip
def test_bad_settings(change: tuple[str, str], said: str, tmp_path: Path, topdown: Command) -> None:
    path = configured(tmp_path, change)
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    done = topdown("run", path, "--quiet")
    assert done.returncode in (BudgetError.exit_code, ConfigError.exit_code, CountsError.exit_code)
    assert done.stderr.count("error:") == 1
    assert said in " ".join(done.stderr.split()), done.stderr
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_an_attribute_called_as_a_column_of_the_release(tmp_path: Path, topdown: Command) -> None:
    path = configured(tmp_path, ("hrace", "level"))
    homes = pd.read_parquet(tmp_path / "households.parquet")
    homes.rename(columns={"hrace": "level"}).to_parquet(tmp_path / "households.parquet", index=False)
    for command in ("check", "run"):
        done = topdown(command, path, "--quiet")
        assert done.returncode == ConfigError.exit_code
        assert "attribute 'level' has the same name as a column of the release" in done.stderr
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("method", ["top-down", "gls-top-down"])
def test_a_level_may_be_left_out(method: str, tmp_path: Path, topdown: Command) -> None:
    shares = {"state": "1/4", "county": "0", "tract": "0", "block group": "0", "block": "1/4"}
    inner = ", ".join(f'"{level}" = "{share}"' for level, share in shares.items())
    change = (
        'shares = { persons = "1/2", households = "1/2" }',
        f"shares = {{ persons = {{ {inner} }}, households = {{ {inner} }} }}",
    )
    done = topdown("run", configured(tmp_path, change, ('method = "top-down"', f'method = "{method}"')), "--quiet")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_folder_with_another_release_is_kept(tmp_path: Path, topdown: Command) -> None:
    path = configured(tmp_path)
    public = tmp_path / "out" / "public"
    public.mkdir(parents=True)
    (public / "link.json").write_text("{}")
    done = topdown("run", path, "--quiet", "--output", tmp_path / "out")
    assert done.returncode == ConfigError.exit_code
    assert "give another --output directory, which spends its budget anew" in " ".join(done.stderr.split())
    assert [one.name for one in public.iterdir()] == ["link.json"]
