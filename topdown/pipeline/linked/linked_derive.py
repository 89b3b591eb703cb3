"""From measurements of two linked tables to what is published of both: a release each, and linked microdata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topdown.config.linked_settings import LinkedConfig
from topdown.linked.dealing import dealt
from topdown.linked.record_faults import LinkedRows
from topdown.linked.universe import LinkedQuery, PublicFigures, Universe
from topdown.machine.files import whole_folder
from topdown.machine.parallel import started
from topdown.machine.progress import Stages
from topdown.machine.tasks import Submits
from topdown.measurements.measurements import Answers, Measurements
from topdown.microdata.linked_microdata import LinkedDescription, LinkedMicrodata, require_equal, write_linked
from topdown.noise import KeyedSource
from topdown.pipeline.derive import Drawn, Projected, write_made
from topdown.privacy.linked_units import LinkedGuarantee
from topdown.projection.check.certificate import Certificate, require_certificate
from topdown.projection.check.cross_checks import CrossCheck, families_again, say_agreement
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.families import Sparse
from topdown.projection.histograms.linear_answers import LinearAnswers, linear_answers
from topdown.projection.histograms.whole import WholeProjection
from topdown.projection.invariants import Contradiction
from topdown.projection.linked.linked_descent import LinkedFamilies, LinkedProgram, linked_down
from topdown.projection.linked.linked_upward import from_below
from topdown.projection.method import method_named
from topdown.projection.solver_inputs import in_words
from topdown.projection.upward_start import start_of
from topdown.release.linked_release import write_link
from topdown.release.publication import Begun, begun
from topdown.release.whole_counts import Release, SparseCounts, nodes_of
from topdown.tables.tidy import named_failures
from topdown.workload.answer_tables import answer_tables, queries_of


@dataclass(frozen=True)
class LinkedDrawn:
    """What a release of two tables is derived from, without the counts: by table what a release of it alone is derived
    from; what is public of every node; what both guarantee together."""

    tables: Mapping[str, Drawn]
    figures: PublicFigures
    guarantee: LinkedGuarantee
    noise: str
    ties: KeyedSource = field(repr=False)

    @property
    def measurements(self) -> dict[str, Measurements]:
        """The measurements of each table by its name."""
        return {name: one.measurements for name, one in self.tables.items()}


@dataclass(frozen=True)
class LinkedSolved:
    """Both tables solved together and whole: the ``releases`` of both by their names, the ``certificate`` of the
    families' programs, the leaves' ``rows`` dealt into households, and the second solutions of families."""

    releases: dict[str, Release]
    certificate: Certificate
    rows: LinkedRows = field(repr=False)
    checks: Mapping[str, CrossCheck] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        config: LinkedConfig,
        drawn: LinkedDrawn,
        counts: SparseCounts,
        certificate: Certificate,
        rows: LinkedRows,
        checks: Mapping[str, CrossCheck] | None = None,
    ) -> LinkedSolved:
        """From the ``counts`` of tagged cells of every node."""
        releases = {
            name: Release.of_entries(
                one.measurements.geography,
                one.measurements.schema,
                entries_of_table(config.universe, counts, name),
                method=config.projection.method,
                fit_for_release=one.fit_for_release,
                certificate=certificate,
            )
            for name, one in drawn.tables.items()
        }
        return cls(releases, certificate, rows, checks or {})


def solved_together(
    config: LinkedConfig,
    drawn: LinkedDrawn,
    stages: Stages,
    *,
    workers: int | None = None,
    executor: Submits | None = None,
    again: bool = True,
) -> LinkedSolved:
    """Both tables solved from the root down, whole, and dealt into linked records; the same whoever works.

    ``again``: whether a sample of the families is solved a second time, where the configuration does not leave it out.
    Raises `ProjectionError` naming the node where a program has no solution, where its certificate does not hold, or
    where the second solution differs.
    """
    universe, geography = config.universe, next(iter(drawn.measurements.values())).geography
    measured = [
        {
            LinkedQuery(universe, query, name == universe.names[1]): Answers(*answers)
            for name, one in drawn.measurements.items()
            for query, answers in one.at(level).items()
        }
        for level in geography.levels
    ]
    options = config.projection
    try:
        start = start_of(geography.levels, method_named(options.method), options.upward)
        said = from_below(geography.tree, measured, start)
        program = LinkedProgram(universe, geography.tree, said, drawn.figures)
        with stages.stage("solving both tables together"):
            found = linked_down(program, drawn.ties.spawn("linked"), workers, executor)
    except Contradiction as contradiction:
        raise in_words(geography, contradiction) from None
    require_certificate(found.certificate, geography, options.method, "tree")
    checks = dict[str, CrossCheck]()
    if again and options.cross_check:
        with stages.stage("solving families again"):
            histograms = [Sparse(cells, own.astype(np.float64)) for cells, own in found.nodes]
            method, stated = method_named(options.method), LinkedFamilies(program)
            checks["non_negative"] = families_again(stated, method, histograms, options.solver, drawn.ties)
        say_agreement(stages, checks)
    with stages.stage(f"dealing {universe.names[1]} into {universe.names[0]}"):
        rows = dealt(universe, enumerate(found.nodes[geography.tree.leaves.start :]))
    return LinkedSolved.of(config, drawn, SparseCounts.of_nodes(found.nodes), found.certificate, rows, checks)


class LinkedFolder(NamedTuple):
    """A folder ``staging`` beside ``public`` in which both releases are being written: ``tables``, the folder of each,
    by its name, which ``name_tables`` gives their final names."""

    public: Path
    staging: Path
    tables: Mapping[str, Begun]
    name_tables: Callable[[], None]


@contextmanager
def begun_linked(drawn: LinkedDrawn, public: Path, executor: Executor | None) -> Iterator[LinkedFolder]:
    """A folder for the releases of both tables, which gets the name ``public`` when the block ends, and is removed when
    it fails.

    What was measured is written by ``executor`` in the meantime. Raises `DataError` where something cannot be written.
    """
    with ExitStack() as held:
        with named_failures(public):
            staging = held.enter_context(whole_folder(public))
        own = held.enter_context(ExitStack())
        tables = {
            name: own.enter_context(
                begun(staging / name, one.measurements, fit_for_release=one.fit_for_release, executor=executor)
            )
            for name, one in drawn.tables.items()
        }
        yield LinkedFolder(public, staging, tables, own.close)
        with named_failures(public):
            held.pop_all().close()


def publish_linked(
    config: LinkedConfig, drawn: LinkedDrawn, solved: LinkedSolved, folder: LinkedFolder, stages: Stages
) -> None:
    """Write the releases of both tables, and how they are linked, into ``folder``. Raises `DataError` where something
    cannot be written."""
    description = _description(config, drawn)
    geography = next(iter(solved.releases.values())).geography
    for name in solved.releases:
        _write_table(config, drawn.tables[name], solved, name, folder.tables[name], stages)
    folder.name_tables()
    told = config.title, description.schemas, description.link, drawn.guarantee, drawn.noise
    with named_failures(folder.public):
        write_link(folder.staging, *told, geography, drawn.figures)


def write_records(
    config: LinkedConfig, drawn: LinkedDrawn, solved: LinkedSolved, directory: Path, stages: Stages
) -> None:
    """The linked microdata of both releases, which they tabulate to, in ``directory``/microdata."""
    geography = next(iter(solved.releases.values())).geography
    leaves = geography.tree.leaves
    vacant = np.zeros(geography.n_leaves, np.int64)
    if drawn.figures.units is not None:
        lived_in = np.bincount(solved.rows.leaf, minlength=geography.n_leaves)
        vacant = drawn.figures.units[leaves.start :] - lived_in
    microdata = LinkedMicrodata(_description(config, drawn), geography, solved.rows, vacant)
    with stages.stage("writing linked records"):
        require_equal(microdata, solved.releases)
        write_linked(directory / "microdata", microdata)
    stages.say(f"wrote     {directory / 'microdata'}: the records, tabulated, are the release of both tables")


def _description(config: LinkedConfig, drawn: LinkedDrawn) -> LinkedDescription:
    schemas = {name: config.schema_of(name).to_mappings() for name in config.universe.names}
    fit = all(one.fit_for_release for one in drawn.tables.values())
    return LinkedDescription(schemas, config.stated_link, fit=fit)


def entries_of_table(universe: Universe, tagged: SparseCounts, name: str) -> SparseCounts:
    """The entries of one of both tables, from those of ``tagged`` cells: households that are lived in, or all persons,
    householders too."""
    is_persons = name == universe.names[1]
    schema = universe.persons if is_persons else universe.households
    own = universe.person_of(tagged.cells) if is_persons else universe.household_of(tagged.cells)
    n_nodes = len(tagged.starts) - 1
    node = nodes_of(tagged.starts)
    there = own >= 0
    keys, place = np.unique(node[there] * schema.n_cells + own[there], return_inverse=True)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, place, tagged.counts[there])
    nodes, cells = np.divmod(keys, schema.n_cells)
    starts = np.concatenate([[0], np.cumsum(np.bincount(nodes, minlength=n_nodes))])
    return SparseCounts(starts.astype(np.int64), cells, counts)


def _write_table(
    config: LinkedConfig, drawn: Drawn, solved: LinkedSolved, name: str, folder: Begun, stages: Stages
) -> None:
    own, measurements = config.of_table(name), drawn.measurements
    tables = answer_tables(own.output.tables, measurements.schema)
    estimates: dict[str, Estimate | LinearAnswers | WholeProjection] = {}
    if tables:
        with stages.stage(f"estimating tables of {name}"):
            estimates["unbiased"] = linear_answers(measurements, queries_of(tables))
    method = config.projection
    estimates["non_negative"] = WholeProjection(method.method, method.weights, solved.certificate)
    made = Projected(estimates, started(lambda: dict(solved.checks), None), solved.releases[name])
    write_made(own, drawn, made, folder, stages, lambda: None)
