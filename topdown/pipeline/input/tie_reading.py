"""What is known of every unit of a release on supports: the release that a configuration ties it to, and which answers
are 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from topdown.config import RunConfig
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.projection.histograms.open_answers import KnownAnswers
from topdown.projection.histograms.support_descent import Tied
from topdown.projection.invariants import Contradiction
from topdown.projection.limits import AnswerLimits, OpenAnswers
from topdown.release.published import read_release
from topdown.release.whole_counts import Release
from topdown.wording import shown, shown_path
from topdown.workload import Query, Schema
from topdown.workload.schema import TIMES

_TIES = "Every unit keeps the counts of a release that was published before: they are public, and cost no budget here."
_CLOSED = (
    "A public table says in which answers a unit has no records. Of answers that share a total that is kept, the "
    "detailed query counts units apart by which of them they have."
)


def known_statement(config: RunConfig) -> str:
    """What is known of every unit in a release on supports, in sentences, and what the SHA-256 beside them is of."""
    if config.ties_path is None:
        return f"{_CLOSED} The table has this SHA-256."
    if config.limits_path is None:
        return f"{_TIES} The release's manifest.json has this SHA-256."
    return (
        f"{_TIES} {_CLOSED} This is the SHA-256 of a text: that of the table, and after it that of the release's "
        "manifest.json."
    )


def known_answers(config: RunConfig, geography: Geography, schema: Schema, limits: AnswerLimits | None) -> KnownAnswers:
    """What ``config`` says is known of every unit of a release on supports: the answers of the release that it is tied
    to, and in which answers there are no records by its ``limits``.

    Raises as `read_ties` does; `ConfigError` for limits that are not kept there or that contradict the ties.
    """
    tied = read_ties(config, geography, schema)
    try:
        given = None if limits is None else OpenAnswers.of_limits(limits)
        return KnownAnswers.of(schema, geography.tree, tied, given)
    except ConfigError as error:
        raise ConfigError(f"bounds: {error}") from None
    except Contradiction as error:
        raise ConfigError(f"bounds: {geography.describe(error.node)}: {error}; correct the table of limits") from None


def read_ties(config: RunConfig, geography: Geography, schema: Schema) -> Tied | None:
    """The answers that ``config`` ties every unit to, None where it names no release.

    Raises `DataError` as `read_release` does, `ConfigError` for a release of other units or of attributes that the
    schema does not have, and where its counts cannot be kept.
    """
    path = config.ties_path
    if path is None:
        return None
    release = read_release(path).release
    theirs, mine = release.geography, geography.identifiers
    same = theirs.identifiers.cast(mine.type).equals(mine)
    if not same or not np.array_equal(theirs.tree.parent, geography.tree.parent):
        raise ConfigError(
            f"ties: {shown_path(path)} has {theirs.n_nodes:,} units, and this release has {geography.n_nodes:,} "
            "others; give a release of the same units"
        )
    query = _query(path, release.schema, schema)
    tied = Tied.of(query, *_answers(release, query), geography.n_nodes)
    try:
        tied.require(geography.tree, schema.possible_cells())
    except Contradiction as error:
        raise ConfigError(f"ties: {geography.describe(error.node)}: {error}; give another release") from None
    return tied


def _query(path: Path, theirs: Schema, schema: Schema) -> Query:
    """The query whose answers are the cells of the release in ``path``, by its attributes' names."""
    try:
        query = Query.parse(f" {TIMES} ".join(theirs.names), schema)
    except ConfigError as error:
        raise ConfigError(f"ties: the attributes of {shown_path(path)} are not the schema's: {error}") from None
    for factor in query.factors:
        if factor.categories != theirs.attribute(factor.name).categories:
            raise ConfigError(
                f"ties: {shown(factor.name)} has other categories in {shown_path(path)} than in the schema; give them "
                "the same, in the same order"
            )
    return query


def _answers(release: Release, query: Query) -> tuple[IntArray, IntArray, IntArray]:
    """The node, the answer and the count of every entry."""
    nodes, cells, counts = release.entries_of(slice(0, release.geography.n_nodes))
    places = dict(zip(release.schema.names, np.unravel_index(cells, release.schema.shape), strict=True))
    answers = np.ravel_multi_index(tuple(places[factor.name] for factor in query.factors), query.shape)
    return nodes, answers, counts
