"""Reads the public table of limits of a configuration, and checks it against itself, the schema and the counts."""

from __future__ import annotations

import hashlib

import numpy as np

from topdown.confidential.counts import Counts
from topdown.config import RunConfig
from topdown.errors import ConfigError, CountsError, DataError
from topdown.geography.geography import Geography
from topdown.pipeline.input.unit_reading import digest_of
from topdown.projection.limits import AnswerLimits
from topdown.release.places import MANIFEST
from topdown.tables.readers import row_named
from topdown.wording import shown, shown_path
from topdown.workload import Schema


def limits_digest(config: RunConfig) -> str | None:
    """SHA-256 of the table of limits, or of the manifest of the release that every unit is tied to, or of the text of
    both; None where there is neither. Raises `DataError` where one cannot be read."""
    manifest = None if config.ties_path is None else config.ties_path / MANIFEST
    public = ((config.limits_path, "bounds.path"), (manifest, "ties.release"))
    found = [digest_of(path, setting) for path, setting in public if path is not None]
    if len(found) < 2:
        return found[0] if found else None
    return hashlib.sha256("".join(found).encode()).hexdigest()


def read_limits(config: RunConfig, geography: Geography, schema: Schema) -> AnswerLimits | None:
    """The limits that ``config`` names, None where it names none.

    Raises `DataError` naming the file and the row, or the unit and the query: for an unknown unit, query or answer, and
    for limits that contradict each other, directly or through those of other units and queries.
    """
    path = config.limits_path
    if path is None or config.bounds is None:
        return None
    try:
        limits = AnswerLimits.from_table(path, geography, schema, closed=config.bounds.closed)
        limits.require_possible()
    except ConfigError as error:
        raise ConfigError(f"bounds: {error}") from None
    except DataError as error:
        said = str(error if error.row is None else error.at(row_named(path, error.row)))
        raise DataError(said if said.startswith(shown_path(path)) else f"{shown_path(path)}: {said}") from None
    return limits


def require_kept(counts: Counts, limits: AnswerLimits) -> None:
    """Refuse counts outside of their limits, since a release that satisfies the limits could not be close to them.
    Raises `CountsError`.
    """
    for query, (low, high) in limits.by_query.items():
        answers = counts.answers(query, slice(0, counts.geography.n_nodes))
        wrong = np.argwhere((answers < low) | (answers > high))
        if len(wrong):
            node, answer = (int(k) for k in wrong[0])
            least, most = low[node, answer], high[node, answer]
            said = f"below its lower limit {least:.0f}"
            if answers[node, answer] >= least:
                said = f"above its upper limit {most:.0f}"
            raise CountsError(
                f"{counts.geography.describe(node)}, query {shown(query.name)}, answer "
                f"{shown(query.labels()[answer])}: its count is {said}; correct one of them"
            )
