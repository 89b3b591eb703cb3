"""The wall between the confidential counts and everything that is published, as the imports show it."""

from __future__ import annotations

import ast
import logging
import re
import shutil
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import topdown as td
from support import second_solutions
from support.command import topdown_command
from support.places import REPOSITORY, RUN_TOML
from topdown.additions import MODULES as MODULES_ADDED
from topdown.config import RunConfig, load_config
from topdown.pipeline import draw
from topdown.pipeline import run as pipeline
from topdown.pipeline.input.reading import read_input
from topdown.tables import output_formats

PACKAGE = REPOSITORY / "topdown"

# A room imports only from rooms with a smaller number; rooms side by side do not import each other. A folder inside a
# room that has a number of its own is a room of its own.
ROOMS = {
    "wording": -1,
    "additions": 0,
    "errors": 0,
    "neighbours": 0,
    "machine": 1,
    "noise": 2,
    "geography": 2,
    "workload": 3,
    "linked": 4,
    "tables": 4,
    "privacy": 4,
    "census.layouts": 5,
    "measurements": 5,
    "pages": 5,
    "confidential": 6,
    "projection": 6,
    "uncertainty": 7,
    "release": 7,
    "planning": 7,
    "census": 8,
    "studies": 8,
    "microdata": 8,
    "config": 9,
    "guess": 9,
    "analysis": 9,
    "studies.report": 10,
    "pipeline": 11,
    "research": 12,
    "synthesis": 13,
    "cli": 13,
    "entry": 14,
    "__main__": 15,
}
CENSUS_COUNTS = {"census.redistricting_counts", "census.ppmf_counts"}
"""The Census Bureau's files read as confidential counts."""
# A simulation measures again and again beside the truth; a study is a pipeline of simulations; a statistic is of
# confidential records.
MAY_SEE_COUNTS = {"confidential", "studies", "pipeline", "research.statistic", *CENSUS_COUNTS}
SHUT_OUT = {
    "measurements",
    "projection",
    "planning",
    "uncertainty",
    "release",
    "census",
    "census.layouts",
    "analysis",
    "microdata",
    "tables",
    "privacy",
}

DERIVES = {
    "pipeline.derive",
    "pipeline.rehearsal",
    "pipeline.made_margins",
    "pipeline.project_measurements",
    "pipeline.exports",
    "pipeline.parts.array_steps",
    "pipeline.parts.cut_points",
    "pipeline.parts.filed_release",
    "pipeline.parts.part_gather",
    "pipeline.parts.part_job",
    "pipeline.parts.part_plan",
    "pipeline.parts.part_store",
}
"""What of the pipeline works on measurements alone."""

STATISTIC = "research.statistic.measured_statistic"
"""The door of a statistic: what it is given is as confidential as the counts."""

KNOWS_TRUTH = {"research.statistic", "research.sections"}
"""What of research knows confidential values: a statistic's records, and a study's truth as the room `report` does. The
rest is shut out."""

TOP = {"", "synthesis", "cli.statistic_command"}
"""The modules outside research that name it: the public names, their face, and a command. Registries load the rest."""

MOST_MODULES = 20
"""How many modules a folder may have, before it needs an inner order."""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def imports_of(source: str) -> set[str]:
    """The package's modules that run when ``source`` does; "" is the package itself. Not those for type checkers."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import: {ast.unparse(node)}"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "topdown":
                inner = name.removeprefix("topdown").lstrip(".")
                found.add(inner if inner in MODULES else inner.rpartition(".")[0])
    return found


GRAPH = {name: imports_of(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def room(module: str) -> str:
    """The room of a module: the longest of its folders that has a number, or its first folder."""
    folders = module.split(".")
    numbered = [".".join(folders[:k]) for k in range(len(folders), 0, -1)]
    return next((name for name in numbered if name in ROOMS), folders[0])


def place(module: str) -> str:
    """The room; of research its folder or module; and the modules that read the Bureau's files as counts."""
    if module in CENSUS_COUNTS:
        return module
    return ".".join(module.split(".")[:2]) if room(module) == "research" else room(module)


def reached(module: str) -> set[str]:
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        for name in GRAPH.get(waiting.pop(), set()) - seen - {""}:
            seen.add(name)
            waiting.append(name)
    return seen


def test_the_graph_is_read_rightly() -> None:
    assert imports_of("from topdown import noise, __version__") == {"noise", ""}
    assert imports_of("import topdown.projection.project") == {"projection.project"}
    assert imports_of("def f():\n    from topdown.confidential.counts import Counts") == {"confidential.counts"}
    assert imports_of("if TYPE_CHECKING:\n    from topdown.confidential.counts import Counts") == set()
    assert "confidential.counts" in reached("pipeline.run")


def test_every_room_has_its_place() -> None:
    assert {room(module) for module in MODULES} - {""} <= set(ROOMS), "place the new room in ROOMS"


@pytest.mark.parametrize("module", sorted(set(MODULES) - {""}))
def test_no_import_runs_back_up(module: str) -> None:
    assert GRAPH[module] <= set(MODULES), "an import that leads nowhere"
    for name in GRAPH[module] - {""}:
        assert room(name) == room(module) or ROOMS[room(name)] < ROOMS[room(module)], f"{module} imports {name}"


def test_no_two_modules_have_one_name_and_no_folder_has_too_many() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    names = Counter(path.name for path in modules)
    assert [name for name, number in names.items() if number > 1] == []
    folders = Counter(path.parent for path in modules)
    assert [folder for folder, number in folders.items() if number > MOST_MODULES] == []


def test_no_two_classes_have_one_name() -> None:
    classes = Counter(
        node.name
        for path in MODULES.values()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, number in classes.items() if number > 1] == []


def test_there_is_no_circle() -> None:
    for module in set(MODULES) - {""}:
        assert module not in reached(module), f"{module} imports itself through others"


def test_few_rooms_see_the_counts() -> None:
    for module, names in GRAPH.items():
        if any(room(name) == "confidential" or name == STATISTIC for name in names) and module != "":
            assert place(module) in MAY_SEE_COUNTS, f"{module} imports the confidential counts"


def test_what_is_published_never_reaches_the_counts() -> None:
    assert set(ROOMS) >= SHUT_OUT
    for module in MODULES:
        researches = room(module) == "research" and place(module) not in KNOWS_TRUTH
        if place(module) in SHUT_OUT or module in DERIVES or researches:
            assert not reaches_counts(module), f"{module} reaches the counts"
    assert {place(module) for module in MODULES} >= KNOWS_TRUTH | CENSUS_COUNTS
    assert set(MODULES) >= DERIVES
    assert STATISTIC in MODULES
    assert reaches_counts("research.statistic.released_statistic")
    assert not reaches_counts("research.theory")


def reaches_counts(module: str) -> bool:
    return any(room(name) == "confidential" or name == STATISTIC for name in reached(module))


def typed_of(path: Path) -> str:
    """What a module imports for type checkers alone."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return "".join(
        ast.unparse(node) for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )


def test_nothing_names_research_but_the_top() -> None:
    """Neither an import nor a string: what the program needs of it comes through registries."""

    def texts(source: str) -> set[str]:
        """Strings that are no docstrings."""
        tree = ast.parse(source)
        said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in said]
        return {node.value for node in nodes if isinstance(node.value, str)}

    assert texts('"""of topdown.research"""\nx = "topdown.research.theory"') == {"topdown.research.theory"}
    typed = {
        name for name, path in MODULES.items() if room(name) != "research" and "topdown.research" in typed_of(path)
    }
    assert typed == {"", "noise"}, "what research adds to them is told to type checkers"
    naming = {
        module
        for module, path in MODULES.items()
        if room(module) != "research"
        and (
            any(room(name) == "research" for name in GRAPH[module])
            or any("research." in text for text in texts(path.read_text(encoding="utf-8")))
        )
    }
    assert naming == TOP


def test_what_is_added_to_registries_is_there() -> None:
    assert {name.removeprefix("topdown.") for name in MODULES_ADDED.values()} <= set(MODULES)
    assert all(room(name.removeprefix("topdown.")) == "research" for name in MODULES_ADDED.values())


def test_what_is_imported_by_name_is_one_method_of_the_plan() -> None:
    """What no import statement shows: the package's own lazy names, and the plan's errors, of a room above it."""
    named = {
        name: re.findall(r'import_module\("(topdown[^"]*)"\)', path.read_text(encoding="utf-8"))
        for name, path in MODULES.items()
    }
    assert {name: found for name, found in named.items() if name and found} == {
        "privacy.plan": ["topdown.planning.expected"]
    }
    assert not {room(name) for name in reached("planning.expected")} & {"confidential"}


def test_nothing_imports_the_package_itself() -> None:
    assert [module for module in MODULES if module and "" in GRAPH[module]] == []


# -- a distinctive count, looked for everywhere --------------------------------------------------------------------

PLANTED = 987_654_321
OTHER = 13_717_421
TOTAL = PLANTED + OTHER


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A release whose noise is large beside 1 and small beside the counts, so that a true value would stand out."""
    (tmp_path / "table.csv").write_text(f"county,adults,children\n01001,{PLANTED},5\n01003,{OTHER},5\n02001,0,5\n")
    path = tmp_path / "run.toml"
    path.write_text(RUN_TOML.replace("epsilon = 1.0", 'epsilon = "1/1000000"'))
    return path


def shows(data: bytes) -> bool:
    """Whether ``data`` holds one of the true values, in letters or as a number of 64 bits."""
    forms = [number for value in (PLANTED, OTHER, TOTAL) for number in (str(value), f"{value:,}")]
    exact = [np.array(value, kind).tobytes() for value in (PLANTED, OTHER, TOTAL) for kind in ("<i8", "<f8")]
    return any(form.encode() in data for form in forms) or any(form in data for form in exact)


def test_the_search_finds_what_it_looks_for(planted: Path) -> None:
    assert shows((planted.parent / "table.csv").read_bytes())
    assert shows(b"total 987,654,321 ")
    assert shows(np.array([1, TOTAL]).tobytes())
    assert shows(np.array([float(OTHER)]).tobytes())


def test_no_true_count_is_in_what_is_published_or_printed(
    planted: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert topdown_command("run", planted, "--verbose") == 0
    output = capfd.readouterr()
    assert "wrote" in output.out
    assert not shows((output.out + output.err + caplog.text).encode())
    public = planted.parent / "output" / "public"
    assert len(list(public.iterdir())) == 12
    for path in public.iterdir():
        assert not shows(path.read_bytes()), path.name
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            assert not shows(str(table.schema).encode() + str(table.schema.metadata).encode())
            file = pq.ParquetFile(path)
            groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
            statistics = [group.column(k).statistics for group in groups for k in range(group.num_columns)]
            assert not shows(str([s and s.to_dict() for s in statistics]).encode())
            for column in table.select([c for c in table.column_names if table[c].type in ("int64", "double")]).columns:
                assert not shows(column.to_numpy().tobytes())


def test_no_true_count_is_in_the_message_of_a_release_that_fails(
    planted: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    second_solutions.let_them_differ(monkeypatch)
    assert topdown_command("run", planted, "--verbose") == 4
    monkeypatch.undo()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output_formats, "write_csv", full)
    assert topdown_command("run", planted, "--verbose") == 3
    output = capfd.readouterr()
    assert "nothing was released" in output.err
    assert "No space left" in output.err
    assert not shows((output.out + output.err).encode())


def test_a_refusal_shows_a_word_and_no_number(planted: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = planted.parent / "table.csv"
    text = table.read_text()
    changes = [
        (",0,5", ",-3,5"),
        (",0,5", ",xy,5"),
        (",0,5", ",x,5"),
        ("02001,0", "09001"),
        ("01003", "1003"),
        ("02001", "01001,1,1\n02001"),
    ]
    for old, new in changes:
        table.write_text(text.replace(old, new))
        assert topdown_command("run", planted) == 3
    output = capfd.readouterr()
    assert "the value is negative" in output.err
    assert "the value 'xy' is not a whole number" in output.err
    assert "the value 'x' marks a count that is suppressed" in output.err
    assert "duplicate" in output.err
    assert not shows((output.out + output.err).encode())


def test_objects_that_hold_confidential_values_do_not_show_them(planted: Path) -> None:
    _, counts = read_input(load_config(planted))
    assert counts.values.max() == TOTAL
    assert not shows((repr(counts) + str(counts)).encode())
    measurements = td.measure(counts, td.Plan(epsilon="1/1000000"))
    for thing in (measurements, td.project(measurements), td.round_counts(td.project(measurements))):
        assert not shows(repr(thing).encode())


# -- the counts end where the noise is drawn ---------------------------------------------------------------------------


@pytest.mark.parametrize("drawn_before", [False, True])
def test_no_count_is_alive_when_the_release_is_derived(
    planted: Path, drawn_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if drawn_before:
        pipeline.run(load_config(planted))
        shutil.rmtree(planted.parent / "output" / "public")
    known: list[weakref.ref[object]] = []
    alive: list[object] = []
    derived = pipeline.derive

    def read(config: RunConfig, *arguments: Any, **options: Any) -> object:
        geography, counts = read_input(config, *arguments, **options)
        known.extend([weakref.ref(counts), weakref.ref(counts.values), weakref.ref(owner(counts.values))])
        return geography, counts

    def owner(array: np.ndarray) -> object:
        while isinstance(array.base, np.ndarray):
            array = array.base
        return array

    def watched(*arguments: Any, **options: Any) -> None:
        alive.extend(found for found in (ref() for ref in known) if found is not None)
        derived(*arguments, **options)

    monkeypatch.setattr(draw, "read_input", read)
    monkeypatch.setattr(pipeline, "derive", watched)
    pipeline.run(load_config(planted))
    assert len(known) == 3
    assert alive == []


def test_the_rooms_are_written_down_as_they_are() -> None:
    text = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (-?\d+) \| (.+?) \|", text, re.MULTILINE)
    written = {name.strip("/"): int(rank) for rank, names in rows for name in re.findall(r"`([^`]+)`", names)}
    assert written == ROOMS
