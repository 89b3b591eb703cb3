"""Which columns of counts are disjoint: sums among the columns are found, and the parts of a total are kept in its
place.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from topdown.guess import vocabulary
from topdown.guess.column_evidence import ColumnEvidence
from topdown.guess.found import some
from topdown.guess.vocabulary import words_of

_LEAST_ROWS = 3
_DEPENDENT = 1e-8
_WHOLE = 1e-3
_SPARE = 64
_LEAST_BITS = 12.0


class Division(NamedTuple):
    """The columns that are taken as ``cells``; ``totals``, left out because they are sums of cells; ``rest``, left out
    because it may count the same records again; and, where this is uncertain, a question (``doubt``) with ``others``:
    the alternative choices of cells.
    """

    cells: list[str]
    totals: dict[str, list[str]]
    rest: list[str]
    doubt: str = ""
    others: tuple[tuple[str, list[str]], ...] = ()


def divided(columns: Sequence[ColumnEvidence]) -> Division:
    """The disjoint ones of ``columns`` of whole numbers, found by their sums and, without sums, by their names."""
    if len(columns) <= 1:
        return Division([one.name for one in columns], {}, [])
    names = [one.name for one in columns]
    numbers = np.stack([one.numbers for one in columns])
    whole = np.isfinite(numbers).all(axis=0)
    values = numbers[:, whole]
    relations = _relations(values)
    totals: dict[str, list[str]] = {}
    twice: list[tuple[list[int], list[int]]] = []
    for left, right in relations:
        if len(left) == 1:
            totals[names[left[0]]] = [names[k] for k in right]
        else:
            twice.append((left, right))
    return _choice(names, values, totals, twice)


def _choice(
    names: list[str],
    values: np.ndarray,
    totals: dict[str, list[str]],
    twice: list[tuple[list[int], list[int]]],
) -> Division:
    place = {name: k for k, name in enumerate(names)}
    kept = [name for name in names if name not in totals]
    if not totals and not twice:
        return _by_names(kept, values)
    for left, right in twice:  # the same records divided in two ways: the finer one stays
        two = [[names[k] for k in side] for side in (left, right)]
        finer, coarser = sorted(two, key=lambda side: (-len(side), min(place[n] for n in side)))
        gone = [name for name in coarser if name in kept and name not in finer]
        if gone and len(set(finer) & set(kept)) > 1:
            kept = [name for name in kept if name not in gone]
    parts = [_parts(total, totals) for total in totals]
    known = set().union(*(set(one) for one in parts), *({names[k] for k in a + b} for a, b in twice))
    # Every total that is no part of another one counts a universe of its own, with its smallest parts.
    tops = [one for one in totals if not any(one in below for below in totals.values())]
    sets = [[name for name in kept if name in set(_parts(one, totals))] for one in tops] if tops else [kept]
    sets = [one for one in sets if one]
    largest = max(sets, key=lambda one: (float(values[[place[n] for n in one]].sum()), len(one)), default=kept)
    if twice and not totals:
        largest = [name for name in kept if name in known]
    loose = [name for name in kept if name not in largest]
    loose = [name for name in loose if values[place[name]].any()] or []
    zeros = [name for name in kept if not values[place[name]].any() and name not in largest]
    cells = [name for name in names if name in largest or (name in zeros and not loose)]
    gone = [name for name in names if name not in cells and name not in totals]
    if not gone:
        return Division(cells, totals, [])
    two_ways = [name for left, right in twice for name in (names[k] for k in left + right) if name in gone]
    doubt = (
        f"{some(two_ways)} divide the same records in another way: only one division can be protected by the budget"
        if two_ways and set(two_ways) >= set(gone)
        else f"{some(gone)} may count the same records again (no sums show that they are others)"
    )
    others = [(f"{some(one)} instead", one) for one in sets if one != largest]
    if two_ways:
        others.append((f"the other division, {some(two_ways)}", two_ways))
    others.append(("all of these are different records", [*cells, *gone]))
    return Division(cells, totals, gone, doubt, tuple(others))


def _parts(total: str, totals: dict[str, list[str]]) -> list[str]:
    """The columns without parts whose sum is ``total``."""
    found: list[str] = []
    for part in totals[total]:
        found += (
            _parts(part, {k: v for k, v in totals.items() if k != total})
            if part in totals and part != total
            else [part]
        )
    return found


# -- without sums: by names, and by which column is never above another --------------------------------------------


def _by_names(names: list[str], values: np.ndarray) -> Division:
    place = {name: k for k, name in enumerate(names)}
    dated = [name for name in names if _YEAR.search(name)]
    years = _same_at_years(dated)
    if years is not None and (len(dated) == len(names) or 2 * len(years) >= len(names) - len(dated)):
        return Division(
            years[-1],
            {},
            [n for n in names if n not in years[-1]],
            "columns of several years count the same people again",
            (
                *((f"{some(one)} instead", one) for one in years[:-1]),
                ("events, of which each is in one column", names),
            ),
        )
    if len(names) > 1 and _are_siblings(names):
        return Division(names, {}, [])
    family = _family_in(names)
    if family:
        gone = [name for name in names if name not in family]
        return Division(
            family,
            {},
            gone,
            f"{some(gone)} may count the same records again as {some(family)}",
            ((f"{some(gone)} instead", gone), ("all of these are different records", names)),
        )
    homes = [name for name in names if vocabulary.says(name, vocabulary.DWELLINGS)]
    if homes and len(homes) < len(names):
        people = [name for name in names if name not in homes]
        found = _by_names(people, values[[place[name] for name in people]]) if len(people) > 1 else None
        kept = people if found is None else found.cells
        gone = [name for name in names if name not in kept]
        doubt = "" if found is None else found.doubt
        return Division(
            kept,
            {},
            gone,
            doubt or f"{some(homes)} counts something else than {some(people)}",
            (
                *(() if found is None else found.others),
                (f"{some(homes)} instead", homes),
                ("all of these are different records", names),
            ),
        )
    within = [
        (a, b)
        for a in names
        for b in names
        if a != b
        and values.shape[1] >= 1
        and (values[place[a]] <= values[place[b]]).all()
        and values[place[a]].sum() < values[place[b]].sum()
    ]
    totals = [name for name in names if vocabulary.says(name, vocabulary.STRONG_TOTAL | vocabulary.POPULATION)]
    holders = {b for _, b in within}
    everybody = [name for name in totals if name in holders]
    others = [name for name in names if name not in everybody]
    doubt = f"are {some(names)} counts of different records, so that each is in one column at most?"
    if everybody and others:
        one = max(everybody, key=lambda name: values[place[name]].sum())
        strong = [name for name in everybody if vocabulary.says(name, vocabulary.STRONG_TOTAL)]
        parts_fit = values.shape[1] > 0 and (values[[place[n] for n in others]].sum(axis=0) <= values[place[one]]).all()
        keep_parts = len(others) > 1 and bool(strong) and parts_fit and _are_siblings(others)
        kept, gone = (others, everybody) if keep_parts else ([one], [n for n in names if n != one])
        return Division(
            kept,
            {},
            gone,
            f"{some([one])} seems to count everybody, and {some([n for n in names if n != one])} some of them again",
            (
                (f"{some(gone)} instead", gone if len(gone) == 1 or keep_parts else others),
                ("all of these are different records", names),
            ),
        )
    contained = sorted({a for a, b in within if _is_kind_of(a, b)}, key=place.__getitem__)
    if contained:
        top = [name for name in names if name not in contained]
        return Division(
            top,
            {},
            contained,
            f"{some(contained)} never exceed {some([b for a, b in within if a in contained][:1])}, as if they counted "
            "some of the same records",
            (("all of these are different records", names), (f"{some(contained)} instead", contained)),
        )
    return Division(names, {}, [], doubt, (("only the first counts records of its own", names[:1]),))


_YEAR = re.compile(r"(?<!\d)(?:1[89]|20)\d\d(?!\d)")
_NUMERAL = re.compile(r"\d+")


def _are_siblings(names: Sequence[str]) -> bool:
    """Whether the names are of one division: words of which one excludes the others, or one pattern with other
    numbers, ranges of ages that do not overlap among them."""
    words = [tuple(p for p in words_of(name)) for name in names]
    shared = set.intersection(*(set(w) for w in words))
    own = [[p for p in w if p not in shared] for w in words]
    letters = [[p for p in w if not p.isdigit()] for w in own]
    if any(set(p) & (vocabulary.STRONG_TOTAL - {"both"}) for p in letters):
        return False
    ranges = [_range_of(w) for w in own]
    stems = {tuple(p) for p in letters}
    plain = {p for w in letters for p in w} - {
        "plus",
        "over",
        "under",
        "to",
        "and",
        "older",
        "age",
        "ages",
        "years",
        "y",
        "ou",
        "mais",
        "et",
        "ans",
        "jahre",
        "bis",
        "unter",
        "anos",
        "a",
        "o",
    }
    if all(one is not None for one in ranges):
        by_stem: dict[frozenset[str], list[tuple[float, float]]] = {}
        for w, one in zip(letters, ranges, strict=True):
            by_stem.setdefault(frozenset(set(w) & plain), []).append(one)  # type: ignore[arg-type]
        apart = all(_apart(ranges_of) for ranges_of in by_stem.values())
        return apart and (len(by_stem) == 1 or _exclude(plain))
    if all(one is None for one in ranges) and len(stems) == len(names):
        glued = "".join(letters[0])
        return _exclude(plain) or (
            _prefix(names)
            and all(glued != "" for _ in names)
            and not any(_is_kind_of(a, b) for a in names for b in names if a != b)
        )
    return False


def _family_in(names: Sequence[str]) -> list[str]:
    """Some of ``names``, but not all, that are of one division by their words; the largest such family."""
    families = [
        [name for name in names if any(_exclude({word}, [known]) for word in words_of(name) if not word.isdigit())]
        for known in vocabulary.DISJOINT
    ]
    found = [one for one in families if 1 < len(one) < len(names) and _are_siblings(one)]
    return max(found, key=len, default=[])


def _exclude(words: set[str], lists: Sequence[frozenset[str]] = vocabulary.DISJOINT) -> bool:
    """Whether the words, or endings of them, are all in one of ``lists`` of mutually exclusive words."""
    return bool(words) and any(
        all(any(word == one or (len(one) > 3 and word.endswith(one)) for one in known) for word in words)
        for known in lists
    )


def _prefix(names: Sequence[str]) -> bool:
    """Whether all names begin with the same separate word, as in votes_a, votes_b."""
    first = {re.split(r"[^0-9A-Za-zÀ-ÿ]", name)[0].lower() for name in names}
    return len(names) > 2 and len(first) == 1 and all(re.search(r"[^0-9A-Za-zÀ-ÿ]", name) for name in names)


def _range_of(words: Sequence[str]) -> tuple[float, float] | None:
    numbers = [int(w) for w in words if w.isdigit()]
    if not numbers or len(numbers) > 2:
        return None
    if len(numbers) == 2:
        return (numbers[0], numbers[1]) if numbers[0] <= numbers[1] else None
    if {"plus", "over", "older", "ou", "mais", "mas"} & set(words):
        return numbers[0], float("inf")
    if {"under", "unter", "less", "menos"} & set(words):
        return 0, numbers[0] - 1
    return numbers[0], numbers[0]


def _apart(ranges: Sequence[tuple[float, float]]) -> bool:
    """Whether ranges do not overlap; only the last one may have no end ("85" for 85 and over)."""
    ordered = sorted(ranges)
    return all(a[1] < b[0] for a, b in itertools.pairwise(ordered))


def _is_kind_of(a: str, b: str) -> bool:
    """Whether the name ``a`` is a specialisation of ``b``: white_vap of vap, NWBIR74 of BIR74."""
    one, other = "".join(words_of(a)), "".join(words_of(b))
    if set(words_of(b)) < set(words_of(a)) or (len(other) > 2 and one.endswith(other)):
        return True
    year = set(_NUMERAL.findall(a)) & set(_NUMERAL.findall(b))
    return bool(year) and one != other  # SID74 beside BIR74


def _same_at_years(names: Sequence[str]) -> list[list[str]] | None:
    """``names`` by year, the last year last, where they differ only by the year; else None."""
    by_year: dict[int, dict[str, str]] = {}
    for name in names:
        years = _YEAR.findall(name)
        if len(years) != 1:
            return None
        by_year.setdefault(int(years[0]), {})[name.replace(years[0], "")] = name
    kinds = {frozenset(found) for found in by_year.values()}
    if len(by_year) < 2 or len(kinds) != 1:
        return None
    return [list(by_year[year].values()) for year in sorted(by_year)]


# -- sums ----------------------------------------------------------------------------------------------------------


def _relations(values: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """Sets of columns whose sums are equal in every row; the first of one column where one is a sum."""
    if values.shape[1] < _LEAST_ROWS:
        return []
    alive = np.flatnonzero(values.any(axis=1))
    order = alive[np.argsort(values[alive].sum(axis=1), kind="stable")]
    found = [pair for pair in _solved(values, order) if _holds(values, *pair)]
    summed = {left[0] for left, _ in found if len(left) == 1}
    for left, right in _runs(values, [int(k) for k in alive if k not in summed]):
        if left[0] not in summed:
            found.append((left, right))
            summed.add(left[0])
    return found


def _holds(values: np.ndarray, left: list[int], right: list[int]) -> bool:
    side = values[left].sum(axis=0)
    if not (side == values[right].sum(axis=0)).all():
        return False
    if len(left) == len(right) == 1:
        return float(np.log2(1 + side).sum()) > _LEAST_BITS
    return float(0.5 * np.log2(1 + side).sum()) > _LEAST_BITS


def _solved(values: np.ndarray, order: np.ndarray) -> Iterator[tuple[list[int], list[int]]]:
    """Columns that depend on those of smaller totals, solved for with whole weights."""
    rows = values.shape[1]
    if len(order) < 2 or rows < len(order) or len(order) > 600:
        return
    groups = min(rows, len(order) + _SPARE)
    starts = np.unique(np.linspace(0, rows, groups, endpoint=False).astype(int))
    grouped = np.add.reduceat(values[order], starts, axis=1).T
    norms = np.linalg.norm(grouped, axis=0)
    scaled = grouped / norms
    left_over = np.abs(np.diag(np.linalg.qr(scaled, mode="r")))
    free = left_over < _DEPENDENT
    if not free.any():
        return
    solved = np.linalg.lstsq(scaled[:, ~free], scaled[:, free], rcond=None)[0]
    weights = solved * norms[free] / norms[~free][:, None]
    for column, weight in zip(order[free], weights.T, strict=True):
        whole = np.rint(weight)
        if np.abs(weight - whole).max() < _WHOLE and np.abs(whole).max() == 1:
            yield [int(column), *map(int, order[~free][whole < 0])], [int(k) for k in order[~free][whole > 0]]


def _runs(values: np.ndarray, places: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Columns that are the sum of adjacent columns, for which few rows are enough evidence, or of all others."""
    for k in places:
        target = values[k]
        for direction in (1, -1):
            sums = np.zeros_like(target)
            taken: list[int] = []
            j = k + direction
            while 0 <= j < len(values):
                sums = sums + values[j]
                taken.append(j)
                if (sums > target).any():
                    break
                if (
                    len(taken) > 1
                    and (sums == target).all()
                    and float(0.5 * np.log2(1 + target).sum()) > _LEAST_BITS / 2
                ):
                    yield [k], sorted(taken)
                    break
                j += direction
        others = [j for j in range(len(values)) if j != k]
        if len(others) > 1 and (values[others].sum(axis=0) == target).all() and target.any():
            yield [k], others
