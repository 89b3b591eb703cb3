from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from support.places import REPOSITORY, RUN_TOML, SEVERAL_TOML
from topdown.config import load_config, load_study
from topdown.errors import BudgetError, ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_defaults_are_filled_in_and_resolved(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, RUN_TOML))
    resolved = config.resolved()
    assert resolved["projection"] == {
        "method": "gls-top-down",
        "weights": "variance",
        "cross_check": True,
        "solver": "OSQP",
        "upward": None,
        "order": None,
    }
    assert resolved["privacy"]["mechanism"] == "geometric"
    assert resolved["privacy"]["neighbours"] == "add-remove"
    assert resolved["geography"]["root"] is None  # a column may say it
    assert "folder" not in resolved


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, RUN_TOML + '\n[output]\ndirectory = "../elsewhere"\n'))
    assert config.input_path == tmp_path / "table.csv"
    assert config.output_path == tmp_path.parent / "elsewhere"
    absolute = load_config(write(tmp_path, RUN_TOML.replace("table.csv", "/data/table.csv")))
    assert absolute.input_path == Path("/data/table.csv")


def test_numbers_are_taken_as_they_are_written(tmp_path: Path) -> None:
    text = RUN_TOML.replace("epsilon = 1.0", "epsilon = 0.1").replace("nation = 0.2", 'nation = "1/5"')
    plan = load_config(write(tmp_path, text)).privacy.plan()
    assert plan.epsilon == Fraction(1, 10)
    assert plan.share("nation") == Fraction(1, 5)
    assert plan.share("state") == Fraction(3, 10)
    thirds = RUN_TOML.replace("{ nation = 0.2, state = 0.3, county = 0.5 }", '{ nation = "1/3", state = "1/3", county = "1/3" }')  # fmt: skip  # noqa: E501
    assert load_config(write(tmp_path, thirds)).privacy.plan().share("county") == Fraction(1, 3)


@pytest.mark.parametrize("encode", [
    lambda text: text.encode("utf-8-sig"),
    lambda text: text.replace("\n", "\r\n").encode(),
    lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"),
])  # fmt: skip
def test_a_byte_order_mark_and_other_line_ends_do_not_matter(tmp_path: Path, encode) -> None:  # type: ignore[no-untyped-def]
    plain = load_config(write(tmp_path, RUN_TOML))
    (tmp_path / "run.toml").write_bytes(encode(RUN_TOML))
    assert load_config(tmp_path / "run.toml").resolved() == plain.resolved()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("epsilon = 1.0", "epsilom = 1.0", "unknown key privacy.epsilom; did you mean 'epsilon'.*known: mechanism"),
        ("[geography]", "[geografy]", "unknown key geografy; did you mean 'geography'"),
        ("[input]", "[input]\nfilter = 1", "unknown key input.filter.*known: path, delimiter"),
        ("[input]", "[bounds]\npath = 'a'\nlimits = 1\n[input]", r"unknown key bounds.limits \(known: path, closed\)"),
        ("title =", "folder =", "unknown key folder"),
        ("epsilon = 1.0", "epsilon = 1.0\nseed = 7", "privacy.seed: .*has no seed.*reveal the noise"),
        ("title =", "seed = 7\ntitle =", "seed: .*has no seed"),
        ("title =", "random_seed = 7\ntitle =", "random_seed: .*has no seed"),
        ('path = "table.csv"', "", "input.path is missing; give it"),
        ('cells = ["adults", "children"]', "cells = []", "input.cells: is empty; give at least one, such as"),
        ('cells = ["adults", "children"]', 'cells = "adults"', "input.cells: .*list.*is 'adults'"),
        ("widths = { state = 2, county = 5 }", "", "geography: give either levels .* or widths"),
        ("widths = {", 'levels = ["a"]\nwidths = {', "geography: give either levels"),
        ("widths = {", 'separator = "/"\nwidths = {', "geography: separator is for levels"),
        ("widths = {", 'root_level = ""\nwidths = {', "geography: a level has an empty name; give every one a name"),
        ("widths = { state", 'widths = { " "', "geography: a level has an empty name; give every one a name"),
        (
            "widths = {",
            'root_level = "a x b"\nunits = "u.csv"\nspine = { levels = ["a x b"] }\nwidths = {',
            "geography: two levels of the spine are called 'a x b'; name them apart in geography.spine.names",
        ),
        ("epsilon = 1.0", "epsilon = true", "privacy.epsilon: .*is True"),
        ("[privacy]", '[projection]\nmethod = "gls"\n[privacy]', "projection.method: unknown method 'gls'.*'joint'"),
        ("[privacy]", "[privacy", "not TOML"),
        ("title =", "title = 'a'\ntitle =", "not TOML"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_by_name(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in RUN_TOML
    with pytest.raises(ConfigError, match=rf"run\.toml: .*{says}"):
        load_config(write(tmp_path, RUN_TOML.replace(old, new)))


def test_what_sections_say_together_is_told_without_the_whole_file(tmp_path: Path) -> None:
    text = SEVERAL_TOML + '[recodes.age]\nall = { old = ["adults"] }\n'
    with pytest.raises(ConfigError, match=r"run\.toml: recode 'all': category 'children' .* into a group$"):
        load_config(write(tmp_path, text))


def test_several_mistakes_are_told_together(tmp_path: Path) -> None:
    text = RUN_TOML.replace("epsilon", "epsilom").replace("geoid", "geoids")
    with pytest.raises(ConfigError, match=r"input\.geoids; did you mean 'geoid'.*privacy\.epsilom"):
        load_config(write(tmp_path, text))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: cannot be read"):
        load_config(tmp_path / "gone.toml")
    (tmp_path / "latin.toml").write_bytes("title = 'Doña Ana'".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.toml: line 1 is not UTF-8"):
        load_config(tmp_path / "latin.toml")


def test_a_budget_that_is_not_well_defined_is_a_budget_error(tmp_path: Path) -> None:
    for old, new, says in [
        ("epsilon = 1.0", "epsilon = -1", "epsilon is -1"),
        ("epsilon = 1.0", "", "needs epsilon"),
        ("county = 0.5", "county = 0.4", "add up to 0.9"),
    ]:
        config = load_config(write(tmp_path, RUN_TOML.replace(old, new)))
        with pytest.raises(BudgetError, match=says):
            config.privacy.plan()


def test_the_fingerprint_names_what_decides_the_release(tmp_path: Path) -> None:
    def fingerprint(old: str = "", new: str = "") -> str:
        return load_config(write(tmp_path, RUN_TOML.replace(old, new) if old else RUN_TOML + new)).fingerprint()

    same = fingerprint()
    assert fingerprint("", '\n[output]\ndirectory = "x"\ncsv = false\n') == same
    # How the answer is checked a second time does not change it: a failed check can be repeated with another solver.
    assert fingerprint("", '\n[projection]\nsolver = "CLARABEL"\ncross_check = false\n') == same
    assert fingerprint("", "\n# a comment\n") == same
    others = [
        fingerprint("epsilon = 1.0", "epsilon = 1.1"),
        fingerprint("table.csv", "other.csv"),
        fingerprint('"adults", ', ""),
        fingerprint("", '\n[projection]\nmethod = "joint"\n'),
        fingerprint("widths =", 'root = "USA"\nwidths ='),
    ]
    assert len({same, *others}) == 6


@pytest.mark.parametrize("name", ["us_counties", "us_counties_zcdp", "us_counties_invariant_states"])
def test_the_pipelines_of_the_repository_are_valid(name: str) -> None:
    config = load_config(REPOSITORY / "pipelines" / f"{name}.toml")
    assert config.input_path.is_file()
    assert config.privacy.plan().total > 0


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    """Between sections and in the budget too, although each of them alone would have been found later."""
    text = (
        RUN_TOML.replace('geoid = "county"', "")
        .replace('"children"]', '"children", "state"]\nwhere = 1')
        .replace("[privacy]", 'names = "state"\n[privacy]\nneighbours = "x"\nunit = ""\nmechanism = "geometricc"')
        .replace("county = 0.5", "conty = 0.4")
    )
    with pytest.raises(ConfigError) as raised:
        load_config(write(tmp_path, text + '\n[output]\ndirectori = "x"\n[projection]\nmethod = "gls"\n'))
    for says in (
        "input.where: ",
        "unknown key output.directori; did you mean 'directory'",
        "projection.method: unknown method 'gls'",
        "unknown mechanism 'geometricc'",
        "unknown neighbours 'x'",
        "unit is ''",
        "add up to 0.9",
    ):
        assert says in str(raised.value)


def test_contradictions_between_sections_are_told_with_the_others(tmp_path: Path) -> None:
    text = RUN_TOML.replace('geoid = "county"', "").replace('"children"', '"children", "label"')
    text = text.replace("[privacy]", 'names = "label"\n[privacy]') + '[output]\ndirectori = "x"\n'
    with pytest.raises(ConfigError, match=r"directori.*names 'label', which is a column of names.*geoid is missing"):
        load_config(write(tmp_path, text))


def test_a_budget_that_is_wrong_in_several_ways_is_told_whole(tmp_path: Path) -> None:
    text = RUN_TOML.replace("epsilon = 1.0", 'epsilon = 0\nneighbours = "x"').replace("county = 0.5", "conty = 0.5")
    with pytest.raises(
        BudgetError, match=r"epsilon is 0.*names level 'conty', which the geography does not have.*neighbours 'x'"
    ):
        load_config(write(tmp_path, text)).plan()


def test_what_the_report_shades_is_in_order(tmp_path: Path) -> None:
    study = RUN_TOML + "\n[study]\nreplicates = 3\n[report]\n"
    config = load_study(write(tmp_path, study + "unreliable = 0.5\n"))
    assert (config.report.doubtful, config.report.unreliable) == (0.2, 0.5)
    for wrong, words in (
        ("doubtful = 0.5\n", "doubtful must be the smaller one"),
        ("doubtful = 0\n", "report.doubtful"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_study(write(tmp_path, study + wrong))


# -- what is said and would not be done ------------------------------------------------------------------------------


def test_levels_that_a_preset_publishes_exactly_are_those_that_are_named(tmp_path: Path) -> None:
    text = """
[input]
path = "folder"
rows = "pl94"
[geography]
root_level = "state"
widths = { county = 5, tract = 11, "block group" = 12, block = 15 }
[privacy]
preset = "pl94-2020-pr"
invariants = INVARIANTS
"""
    plans = [
        load_config(write(tmp_path, text.replace("INVARIANTS", said))).plan()
        for said in ("[]", '["county"]', '{ county = ["detailed"] }')
    ]
    assert [plan.is_exact("county", "detailed") for plan in plans] == [False, True, True]
    assert plans[1].queries("county") == ("detailed",)
    assert plans[1].rho is not None
    assert plans[0].rho is not None
    assert plans[1].rho < plans[0].rho


@pytest.mark.parametrize("name", ["3", '["pl94-2020-units"]', "{ a = 1 }"])
def test_a_preset_that_is_no_text_is_refused(tmp_path: Path, name: str) -> None:
    text = RUN_TOML[: RUN_TOML.index("[privacy]")] + f"[privacy]\npreset = {name}\n"
    with pytest.raises(ConfigError, match=r"privacy\.preset: give a text in quotes"):
        load_config(write(tmp_path, text))


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        ("epsilon = {}", "epsilon"),
        ("epsilon = { nation = 1 }", "epsilon"),
        ("shares = { nation = { total = true } }", "shares.nation.total"),
        ("shares = { nation = { total = { a = 1 } } }", "shares.nation.total"),
    ],
)
def test_a_table_in_place_of_a_number_is_named(tmp_path: Path, setting: str, where: str) -> None:
    name = setting.split(" ")[0]
    lines = [setting if line.startswith(f"{name} =") else line for line in RUN_TOML.splitlines()]
    with pytest.raises(ConfigError, match=rf"privacy\.{where}: give a number, or a fraction as \"1/3\""):
        load_config(write(tmp_path, "\n".join(lines)))


def test_a_preset_beside_another_mistake_lacks_no_budget(tmp_path: Path) -> None:
    text = RUN_TOML.replace("geoid", "geoids")
    text = text[: text.index("[privacy]")] + '[privacy]\npreset = "pl94-2020-units"\n'
    with pytest.raises(ConfigError, match=r"input\.geoids; did you mean 'geoid'") as found:
        load_config(write(tmp_path, text))
    assert "epsilon" not in str(found.value)


def test_a_name_of_the_roots_level_is_not_left_aside(tmp_path: Path) -> None:
    text = RUN_TOML.replace(
        "widths = { state = 2, county = 5 }", 'levels = ["nation", "state", "county"]\nroot_level = "us"'
    )
    assert load_config(write(tmp_path, text)).geography.level_names == ["us", "nation", "state", "county"]
    named = text.replace('root_level = "us"', 'root_level = "nation"')
    assert load_config(write(tmp_path, named)).geography.level_names == ["nation", "state", "county"]
    with pytest.raises(ConfigError, match="root_level is 'state', which is below another of the levels"):
        load_config(write(tmp_path, text.replace('root_level = "us"', 'root_level = "state"')))
