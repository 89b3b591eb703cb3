"""The release that a configuration ties every unit to: read, and held against the units and the schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from topdown.config import RunConfig
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.projection.histograms.support_descent import Tied
from topdown.projection.invariants import Contradiction
from topdown.release.published import read_release
from topdown.release.whole_counts import Release
from topdown.wording import shown, shown_path
from topdown.workload import Query, Schema
from topdown.workload.schema import TIMES

TIES_STATEMENT = (
    "Every unit keeps the counts of a release that was published before, and whose manifest.json has this SHA-256: "
    "they are public, and cost no budget here."
)


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
