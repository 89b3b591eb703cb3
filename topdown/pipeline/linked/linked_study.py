"""A study of two linked tables: from the same noise solved separately and together, and compared with the true ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from topdown.confidential.measure import measure
from topdown.config.linked_settings import LinkedConfig
from topdown.errors import ProjectionError
from topdown.geography.geography import Geography
from topdown.linked.impossible import CountedCells
from topdown.linked.link_text import facts_of
from topdown.linked.universe import PublicFigures, Universe
from topdown.machine.files import make_folder, whole_file
from topdown.machine.progress import Silent, Stages
from topdown.measurements.measurements import Measurements
from topdown.noise import KeyedSource, SeededSource
from topdown.pipeline.confidential_folder import confidential_directory, write_marked
from topdown.pipeline.derive import Drawn, made_whole
from topdown.pipeline.linked.linked_derive import LinkedDrawn, solved_together
from topdown.pipeline.linked.linked_draw import LinkedPrepared, prepare_linked
from topdown.pipeline.study import StudyOutcome
from topdown.projection.conditions import Limits
from topdown.projection.limits import AnswerLimits
from topdown.release.manifest import Origin
from topdown.release.whole_counts import Release
from topdown.studies.report.together import (
    APART,
    TOGETHER,
    ByLevel,
    LinkedComparison,
    render_together,
    together_summary,
)
from topdown.tables.tidy import named_failures
from topdown.uncertainty.laws.known_noise import no_margins
from topdown.uncertainty.margins import margins
from topdown.workload import Query

LINKED_STUDY_STAGES = 3
"""How many stages `study_linked` has, for a progress bar."""

RESULTS, ERRORS, COVERAGE, REPORT = "results.parquet", "errors.parquet", "coverage.parquet", "report.html"
"""The files of a study of two linked tables."""


def study_linked(
    config: LinkedConfig,
    output: Path | None = None,
    stages: Stages | None = None,
    *,
    workers: int | None = None,
    replicates: int | None = None,
) -> StudyOutcome:
    """Measure both tables of ``config`` many times, solve each measurement separately and together, and write how many
    results are impossible and how large errors are, both ways, to ``output``/internal.

    Leaves results.parquet, errors.parquet, coverage.parquet where the releases have intervals (`LinkedComparison`), and
    report.html. ``workers`` (threads) and ``replicates`` stand in for the configuration's. An interrupt keeps the
    replicates that are finished. No budget is spent. Raises `ConfigError` for an output directory that is public, and
    whatever a release would be refused for, before the first replicate; `ProjectionError` where a replicate cannot be
    solved.
    """
    stages, options = stages or Silent(), config.study
    directory = confidential_directory(config.output_path if output is None else output)
    prepared = prepare_linked(config, stages)
    comparison = _comparison(config, prepared)
    wanted = options.replicates if replicates is None else replicates
    finished = 0
    with stages.stage(f"simulating {wanted:,} replicates"):
        try:
            for number in range(wanted):
                measured, both = _solved(config, prepared, number, workers)
                for solved, releases in both.items():
                    comparison.add(number, solved, _by_level(releases))
                _add_margins(config, comparison, number, measured, both[TOGETHER])
                finished = number + 1
                stages.count(finished, wanted)
        except KeyboardInterrupt:
            if not finished:
                stages.say("stopped   before the first replicate was finished: nothing was written")
                raise
            stages.say(f"stopped   after {finished:,} of {wanted:,} replicates, which are kept")
        except ProjectionError as error:
            raise ProjectionError(f"in replicate {finished}: {error}") from None
    notice = "comparison with public counts" if options.public_input else "confidential comparison with the true counts"
    summary = together_summary(
        comparison,
        title=config.title or " and ".join(config.universe.names),
        notice=notice,
        public_input=options.public_input,
        replicates=finished,
        seed=options.seed,
        confidence=config.output.confidence,
        guarantee="\n".join(prepared.guarantee.describe()),
    )
    marks = {"notice": notice, "replicates": str(finished)}
    with stages.stage("writing"), named_failures(directory):
        make_folder(directory, private=True)
        tables = {RESULTS: comparison.results(), ERRORS: comparison.errors(), COVERAGE: comparison.coverage()}
        if tables[COVERAGE].empty:  # no interval is published; nothing stays of an earlier study
            del tables[COVERAGE]
            (directory / COVERAGE).unlink(missing_ok=True)
        for name, frame in tables.items():
            write_marked(directory / name, frame, marks)
        with whole_file(directory / REPORT, private=True) as partial:
            partial.write_text(render_together(summary), encoding="utf-8")
    for name in (*tables, REPORT):
        stages.say(f"wrote     {directory / name}")
    if options.public_input:  # of confidential tables no number is told
        for card in summary["cards"]:
            for line in (card["headline"], *card["more"]):
                stages.say(f"found     {line}")
    kept = "it is a" if options.public_input else "keep it, it is a"
    stages.say(f"next      open {directory / REPORT}; {kept} {notice}")
    return StudyOutcome(directory, directory / REPORT, finished, wanted, finished < wanted)


def _comparison(config: LinkedConfig, prepared: LinkedPrepared) -> LinkedComparison:
    counts, queries = prepared.counts, {}
    true = {name: counts.of_table(name) for name in prepared.plans}
    for name, plan in prepared.plans.items():
        asked = dict.fromkeys(query for level in plan.levels for query in plan.queries(level))
        queries[name] = list(dict.fromkeys(Query.parse(query, true[name].schema) for query in asked))
    levels = _levels(counts.geography)
    truth = {name: [CountedCells(*one.part(nodes)) for nodes in levels] for name, one in true.items()}
    return LinkedComparison(config.universe, counts.geography, truth, queries, facts_of(config.link))


def _solved(
    config: LinkedConfig, prepared: LinkedPrepared, number: int, workers: int | None
) -> tuple[dict[str, Measurements], dict[str, dict[str, Release]]]:
    """The measurements of one replicate by table, and the releases of both tables by how they were solved."""
    source, figures = SeededSource((config.study.seed, number)), prepared.counts.figures
    measured = {
        name: measure(prepared.counts.of_table(name), plan, source.spawn(name)) for name, plan in prepared.plans.items()
    }
    ties = KeyedSource(source.spawn("ties").read(32))
    tables = {name: Drawn(one, ties, prepared.plans[name], Origin()) for name, one in measured.items()}
    apart = {
        name: made_whole(
            config.of_table(name),
            one,
            None,
            ties.spawn(name),
            public_limits(config.universe, one, figures),
            workers=workers,
        )
        for name, one in measured.items()
    }
    together = solved_together(
        config, LinkedDrawn(tables, figures, prepared.guarantee, "", ties), Silent(), workers=workers, again=False
    ).releases
    return measured, {APART: apart, TOGETHER: together}


def _add_margins(
    config: LinkedConfig,
    comparison: LinkedComparison,
    number: int,
    measured: Mapping[str, Measurements],
    releases: Mapping[str, Release],
) -> None:
    """Add the margins of error of the tables of both releases, as they are published; none where there are none."""
    for name, one in measured.items():
        output, schema = config.of_table(name).output, one.schema
        queries = [Query.parse(text, schema) for text in output.tables] if output.margins else []
        if queries and no_margins(one) is None:
            texts = [query.name for query in queries]
            frame = margins(one, releases[name], confidence=output.confidence, queries=texts)
            for query in queries:
                rows = frame[frame["query"] == query.name]
                lower, upper = (rows[end].to_numpy().reshape(-1, query.n_answers) for end in ("lower", "upper"))
                comparison.add_margins(number, name, query, lower, upper)


def public_limits(universe: Universe, table: Measurements | Release, figures: PublicFigures) -> AnswerLimits | None:
    """What is public of both tables as limits of the answers of one ``table`` alone: no more households than
    units; persons in a facility at least as many as facilities, and none where there is none. Of a facility that is no
    single answer to a query the most alone is limited, or nothing where no query tells it apart."""
    schema, geography = table.schema, table.geography
    found: dict[Query, Limits] = {}

    def limits_of(query: Query) -> Limits:
        shape = geography.n_nodes, query.n_answers
        return found.setdefault(query, Limits(np.zeros(shape), np.full(shape, np.inf)))

    if schema == universe.households:
        if figures.units is not None:
            limits_of(Query.parse("total", schema)).high[:, 0] = figures.units
    else:
        for column, facility in enumerate(one for one in universe.facilities if one.counted):
            if len(facility.persons) > 1 or len(facility.persons[0]) > 1:
                continue
            ((name, categories),) = facility.persons[0]
            query, there = Query.parse(name, schema), figures.facilities[:, column]
            places = [query.labels().index(category) for category in categories]
            limits_of(query).high[np.ix_(there == 0, places)] = 0
            if len(places) == 1:
                limits_of(query).low[:, places[0]] = there
    return AnswerLimits(geography, schema, found) if found else None


def _by_level(releases: Mapping[str, Release]) -> ByLevel:
    return {
        name: [CountedCells(*one.entries_of(nodes)) for nodes in _levels(one.geography)]
        for name, one in releases.items()
    }


def _levels(geography: Geography) -> list[slice]:
    return [geography.level_slice(level) for level in geography.levels]
