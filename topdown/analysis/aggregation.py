"""td.aggregate(): the sums of a release by areas that lie off its spine, each with its margin of error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from topdown.analysis.regions import Regions
from topdown.analysis.sum_intervals import Region
from topdown.errors import require_list
from topdown.geography.tree import IntArray, runs
from topdown.machine.software import version_of
from topdown.release.manifest import SCHEMA_VERSION
from topdown.release.published import PublishedRelease, read_release
from topdown.release.whole_counts import Release
from topdown.tables.assignments import Assignment, Files, Given, assignments
from topdown.tables.output_formats import OUTPUT_FORMATS, format_of, write_frame
from topdown.tables.tidy import named_failures, records_text
from topdown.uncertainty.laws.known_noise import no_margins
from topdown.uncertainty.margins import require_confidence
from topdown.workload.answer_tables import Column, answer_column, answer_columns

AGGREGATE_COLUMNS = (
    "assignment",
    "region",
    "level",
    "units",
    "query",
    "cell",
    "value",
    "estimate",
    "sd",
    "lower",
    "upper",
    "note",
)
UNASSIGNED = "assigned to no district"
_NUMBERS_AT_ONCE = 1 << 22


class Aggregation(NamedTuple):
    """Sums by district: what `aggregate` returns.

    Attributes:
        table: one row per assignment, district and answer, with the columns `AGGREGATE_COLUMNS`.
        notes: one sentence on everything that was left out.

    Examples:
        >>> sums = td.aggregate("public", {"regions": {"01001": "east", "01003": "west"}})
        >>> sums.table.columns[:5].tolist()
        ['assignment', 'region', 'level', 'units', 'query']
        >>> len(sums.notes)
        1
    """

    table: pd.DataFrame
    notes: tuple[str, ...]

    def write(self, path: str | Path) -> None:
        """Write the table as a file. Raises `ConfigError` for another ending, `DataError` where the file cannot be
        written.

        Args:
            path: ends in .csv, .parquet or .json (a list of records).
        """
        path, among = Path(path), tuple(OUTPUT_FORMATS.values())
        format_of(path, among)
        about = {
            "software": f"topdown {version_of()}",
            "schema version": SCHEMA_VERSION,
            "notes": "\n".join(self.notes),
        }
        with named_failures(path):
            write_frame(path, self.table, about, among)

    def to_json(self) -> str:
        """The table's rows as JSON records, in one text that ends with a line end."""
        return records_text(self.table)


def aggregate(
    public: str | Path | PublishedRelease,
    by: Files | Mapping[str, Given],
    *,
    query: str = "total",
    cells: Sequence[str] = (),
    confidence: float = 0.9,
    district: Sequence[str] = (),
    skip_unknown: bool = False,
) -> Aggregation:
    """A release summed by districts: a row per assignment, district and answer.

    ``units``: how many units of ``level`` the district has; ``value``: its released count, which adds up; ``estimate``
    by least squares, ``sd``, ``lower`` and ``upper`` as `region` has them, in counts; ``note``: what the reader has to
    know. Units that are in no district are summed in a row without a region, so that the rows of an assignment add up
    to the release. Where `region` has no margin there is none here, and the note says so.

    Args:
        public: the directory of a release, or what `read_release` gave.
        by: block assignment files, units in the first column and districts in the second, or names with files or
            {GEOID: district}.
        query: the query whose answers are summed, by default the total; or a table of the redistricting file ("P1").
        cells: which of the query's answers, by default all; or fields of the redistricting file ("P0010003").
        confidence: probability with which each interval covers the true sum, above 0.5 and below 1.
        district: the columns that together name the district, in files with other columns than units and districts.
        skip_unknown: leave out units of the files that the release does not have, with a note, in place of an error.

    Raises `DataError` for units that are not in the release (unless ``skip_unknown``), given twice, or of several
    levels, `ConfigError` for unknown queries, cells and confidences.

    Examples:
        >>> regions = {"01001": "east", "01003": "west", "02013": "east", "02016": "west"}
        >>> sums = td.aggregate("public", {"regions": regions})
        >>> list(sums.table["region"].unique())
        ['east', 'west']
    """
    found = public if isinstance(public, PublishedRelease) else read_release(public)
    kept, schema = found.measurements, found.release.schema
    require_list(cells, "cells")
    named: list[str | None] = list(cells)
    if not named:
        columns = answer_columns(query, schema)
        named = [one.name for one in columns] if len(columns) > 1 else [None]
    answers = {cell: answer_column(query, cell, schema) for cell in named}
    law, regions = no_margins(kept.kept), Regions(kept.kept)
    require_confidence(confidence)
    frames, notes = [], []
    for one in assignments(by, found.geography, district=district, skip_unknown=skip_unknown):
        why = kept.reason_against([one.level]) or law
        frames.append(_summed(found.release, regions, one, query, answers, confidence, why))
        part = found.geography.level_slice(one.level)
        notes += one.notes(part.stop - part.start)
    return Aggregation(pd.concat(frames, ignore_index=True), tuple(notes))


def _summed(
    release: Release,
    regions: Regions,
    one: Assignment,
    query: str,
    answers: Mapping[str | None, Column],
    confidence: float,
    why: str | None,
) -> pd.DataFrame:
    cells = list(answers)
    names: list[str | None] = [*one.districts]
    nodes = list(one.nodes)
    if len(one.unassigned):
        names.append(None)
        nodes.append(one.unassigned)
    counts = _released(release, one.level, nodes, list(answers.values()))
    if why is None:
        sums = [(members, np.ones(len(members))) for members in nodes]
        margins = regions.sums(sums, query=query, cells=cells, confidence=confidence)
    else:
        none = Region(np.nan, np.nan, np.nan, np.nan, f"no margin: {why}")
        margins = [[none] * len(cells) for _ in nodes]
    rows = []
    for place, (name, members) in enumerate(zip(names, nodes, strict=True)):
        for k, cell in enumerate(cells):
            region = margins[place][k]
            note = "; ".join(said for said in (UNASSIGNED if name is None else "", region.note) if said)
            answer = cell if cell is not None else query
            rows.append(
                (one.name, name, one.level, len(members), query, answer, int(counts[place, k]), *region[:4], note)
            )
    return pd.DataFrame(rows, columns=list(AGGREGATE_COLUMNS))


def _released(release: Release, level: str, nodes: Sequence[IntArray], answers: Sequence[Column]) -> IntArray:
    """The released counts (districts x answers)."""
    of = np.full(release.geography.n_nodes, -1)
    for place, members in enumerate(nodes):
        of[members] = place
    total = np.zeros((len(nodes), len(answers)), np.int64)
    part = release.geography.level_slice(level)
    for asked in dict.fromkeys(one.query for one in answers):
        columns = [k for k, one in enumerate(answers) if one.query == asked]
        chosen = [answers[k].answer for k in columns]
        step = max(1, _NUMBERS_AT_ONCE // asked.n_answers)
        for here in runs(part, step):
            has = of[here] >= 0
            values = release.answers_of(here, asked)[has][:, chosen]
            np.add.at(total, (of[here][has][:, None], np.array(columns)), values)
    return total
