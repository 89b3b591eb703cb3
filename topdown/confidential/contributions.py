"""Contributions bounded before counting: at most k records of every person, so that a person moves counts by at most k.

Where people have several records, "one record more or less" protects records and not people. With at most k records
each a person is a group of k: a plan of epsilon/k for records (rho/k^2 for Gaussian noise) protects people with epsilon
(`td.privacy.group_epsilon`, `group_rho`). What is dropped is a bias that depends on the data, and confidential.

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
    """Records of which every person has at most ``most``; everything here but ``most`` is confidential.

    ``dropped`` records, of ``people_cut`` people of ``people``: how much bias clipping brings, for whoever chooses
    k; to publish it takes a budget of its own.

    Args:
        records: what is kept, in the order of the table.

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
    """At most ``most`` records of every person, which of them by chance.

    Args:
        person: the column that says whose a record is. A person's choice depends on no one else's records, so that
            one person more or less changes at most ``most`` records of the result.
        source: by default the operating system's entropy.

    Raises `ConfigError` for a column that is not there or a ``most`` that is no whole number of 1 or more,
    `CountsError` naming the row for a record that is nobody's.

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
    # By person, and within by 128 random bits: ties have a chance of 2^-100 or so.
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
