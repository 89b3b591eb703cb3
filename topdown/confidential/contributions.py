"""Bounds contributions before counting: at most k records of every person, so that a person changes counts by at most k
in sum.

Where people have several records, "one record more or less" protects records and not people. With at most k records
each a person is a group of k: a plan of epsilon/k for records (rho/k^2 for Gaussian noise) protects people with epsilon
(`td.privacy.group_epsilon`, `group_rho`). Dropping records introduces a bias, which depends on the data and is
confidential.

Source: the group-privacy lemma (Dwork, Roth 2014, Theorem 2.2); bounding contributions as in Wilson, Zhang, Lam,
Desfontaines, Simmons-Marengo, Gipson 2020, "Differentially Private SQL with Bounded User Contribution".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from topdown.errors import ConfigError, CountsError
from topdown.noise import SecureSource, Source
from topdown.noise.randomness import uint64
from topdown.wording import column_name, column_names, shown


@dataclass(frozen=True, eq=False)
class BoundedContributions:
    """Records of which every person has at most ``most``. Everything here except ``most`` is confidential.

    ``dropped`` and ``people_cut`` show the size of the bias. To publish them takes a budget of its own.

    Args:
        most: how many records a person has at most.
        records: the records that are kept, in the order of the table.
        dropped: how many records were left out.
        people_cut: how many people lost a record.
        people: how many people the table has.

    Examples:
        >>> from topdown.confidential.contributions import bound_contributions
        >>> visits = pd.DataFrame({"person": ["a", "a", "a", "b"], "place": ["x", "y", "z", "x"]})
        >>> found = bound_contributions(visits, "person", most=2, source=td.SeededSource(1))
        >>> found.most, found.dropped
        (2, 1)
    """

    most: int
    records: pd.DataFrame = field(repr=False)
    dropped: int = field(repr=False)
    people_cut: int = field(repr=False)
    people: int = field(repr=False)


def bound_contributions(
    records: pd.DataFrame, person: str, most: int, source: Source | None = None
) -> BoundedContributions:
    """At most ``most`` records of every person, chosen at random.

    Args:
        records: the table, a row per record.
        person: the column that identifies the person of a record. Which records of a person are kept does not depend on
            the records of others, so that one person more or less changes at most ``most`` records of the result.
        most: how many records of a person are kept, 1 or more.
        source: by default the operating system's entropy.

    Raises `ConfigError` for a column that does not exist or a ``most`` that is not a whole number of 1 or more, and
    `CountsError`, naming the row, for a record without a person.

    Examples:
        >>> from topdown.confidential.contributions import bound_contributions
        >>> visits = pd.DataFrame({"person": ["a", "a", "a", "b"], "place": ["x", "y", "z", "x"]})
        >>> len(bound_contributions(visits, "person", most=2, source=td.SeededSource(1)).records)
        3
    """
    if person not in records.columns:
        raise ConfigError(f"the table has no column {shown(person)}; it has {column_names(records.columns)}")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ConfigError(f"most is {shown(most)}; give a whole number of 1 or more")
    missing = np.flatnonzero(records[person].isna().to_numpy())
    if missing.size:
        raise CountsError(
            f"row {missing[0]} has no {column_name(person)}: nobody's record; say whose it is or leave it out"
        )
    whose, _ = pd.factorize(records[person])
    bits = uint64(SecureSource() if source is None else source, 2 * len(records)).reshape(2, -1)
    # Sorted by person, and within a person by 128 random bits: a tie has a probability of about 2^-100.
    order = np.lexsort((bits[1], bits[0], whose))
    sizes = np.bincount(whose, minlength=0)
    rank = np.arange(len(records)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = np.sort(order[rank < most])
    return BoundedContributions(
        most=most,
        records=records.iloc[kept],
        dropped=len(records) - len(kept),
        people_cut=int((sizes > most).sum()),
        people=len(sizes),
    )
