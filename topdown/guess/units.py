"""Which columns tell units apart, and how units nest: columns that are functions of finer ones, and parts of codes."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from topdown.guess import vocabulary
from topdown.guess.code_systems import SYSTEMS, CodeSystem
from topdown.guess.column_evidence import Column, is_function, joined_codes, one_for_one
from topdown.guess.found import Changes, Choice, Question, some

_SURE = 3.0
_LIKELY = 2.0
_MOST_PATH = 5
_HEAD = re.compile(r"[0-9]{4}[0-9A-Z]{3}US|20[0-9]{2}A[0-9]{4}")
_POSTAL = frozenset(["plz", "zip", "zipcode", "zcta", "postcode", "postal", "cap", "cep"])


@dataclass
class Nesting:
    """How units nest, as fields of a `Guess` (``changes``), with the columns that this uses up (``used``), those that
    only describe units (``ignored``), and what has to be asked. ``inner_names``: columns of names of levels above the
    lowest; ``doubtful``: columns that are taken for levels without being sure."""

    changes: Changes = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    ignored: dict[str, str] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    inner_names: dict[str, Column] = field(default_factory=dict)
    doubtful: list[str] = field(default_factory=list)


# -- codes ---------------------------------------------------------------------------------------------------------


def padded(column: Column) -> tuple[pa.Array, int | None]:
    """The codes in ``column`` with the zeros that they lost, and their length where any did; else as they are."""
    lengths = column.lengths
    if not column.is_digits or len(lengths) != 2 or lengths[1] - lengths[0] != 1 or lengths[1] < 3:
        return column.values, None
    return pc.utf8_lpad(column.values, lengths[1], "0"), lengths[1]


def systems_of(column: Column) -> tuple[list[CodeSystem], int | None]:
    """The systems whose codes the ``column``'s can be, those that its name says first; and the length to which its
    codes have to be padded, None where they are whole. Postal codes are of none."""
    if vocabulary.says(column.name, _POSTAL):
        return [], None
    if column.distinct < 2:
        return [], None
    for values, width in {None: (column.values, None), 1: padded(column)}.values():
        codes = values.to_pylist()
        # Before the code may stand what all have in common: 0500000US17001.
        head = _HEAD.match(codes[0])
        if head is not None and all(code.startswith(head[0]) for code in codes):
            found = [one.after(head[0]) for one in SYSTEMS if one.fits([code[len(head[0]) :] for code in codes])]
        else:
            found = [one for one in SYSTEMS if one.fits(codes)]
        if found:
            named = [one for one in found if one.named_by(column.name)]
            return named or found, width
    return [], None


def begins_with(code: Column, parent: Column) -> int | None:
    """How many characters of ``code``, with its zeros, are the ``parent``'s in every row; None if none are."""
    if code is parent or parent.distinct >= code.distinct or parent.distinct < 2 or parent.nulls or code.nulls:
        return None
    width = max(parent.lengths)
    whole, _ = padded(code)
    longest = max(pc.utf8_length(whole).to_pylist())
    for length in (width, width + 1, width + 2):
        if length >= longest or not (parent.is_digits or length == width):
            return None
        upper = pc.utf8_lpad(parent.values, length, "0") if parent.is_digits else parent.values
        head = pc.utf8_slice_codeunits(whole, 0, length)
        if pc.all(pc.equal(head.take(pa.array(code.codes)), upper.take(pa.array(parent.codes)))).as_py():
            return length
    return None


def _ends_with(code: Column, part: Column) -> bool:
    """Whether ``part`` is the end of ``code`` in every row, as a county's number within its state is."""
    if not part.is_digits or part.distinct >= code.distinct or part.nulls or code.nulls:
        return False
    parts = pc.utf8_lpad(part.values, max(part.lengths), "0").take(pa.array(part.codes))
    ends = pc.utf8_slice_codeunits(padded(code)[0].take(pa.array(code.codes)), -max(part.lengths))
    return bool(pc.all(pc.equal(parts, ends)).as_py())


def prefix_of(code: Column, named: Column) -> int | None:
    """The smallest number of characters of ``code`` that decide the text in ``named`` and are decided by it."""
    if code.nulls or named.nulls:
        return None
    whole, _ = padded(code)
    longest = max(pc.utf8_length(whole).to_pylist())
    for length in range(1, min(longest, 12)):
        head = Column("", 0, pc.utf8_slice_codeunits(whole, 0, length).take(pa.array(code.codes)))
        if head.distinct == named.distinct and one_for_one(head, named):
            return length
        if head.distinct > named.distinct:
            return None
    return None


# -- how much a column looks like units ----------------------------------------------------------------------------


def score(column: Column) -> float:
    """How much a column of text or codes looks like units of a geography rather than like categories."""
    rank = vocabulary.level_rank(column.name)
    systems, _ = systems_of(column) if column.is_digits or column.is_coded_text else ([], None)
    found = 2.0 * (rank is not None) + 1.0 * column.has_zeros + 1.0 * column.is_coded_text
    found += 1.5 * vocabulary.says(column.name, vocabulary.CODE) + 0.8 * vocabulary.says(column.name, vocabulary.NAME)
    if systems:
        found += 4.0 if any(one.named_by(column.name) for one in systems) else 0.5
    if vocabulary.says(column.name, vocabulary.CATEGORY) and rank is None:
        found -= 4.0
    if vocabulary.says(column.name, vocabulary.RECORD) and rank is None:
        found -= 3.0
    return found


def by_fineness(columns: Sequence[Column]) -> list[Column]:
    """``columns`` from the coarsest to the finest, by what their names say and how many units they have."""

    def key(one: Column) -> tuple[int, int]:
        rank = vocabulary.level_rank(one.name)
        return (3 if rank is None else rank), one.distinct

    ranked = all(vocabulary.level_rank(one.name) is not None for one in columns)
    return sorted(columns, key=key if ranked else lambda one: (one.distinct, one.place))


def path_to(rows: int, units: Sequence[Column], *, of_rows: bool = True) -> list[Column] | None:
    """Columns, coarsest first, that only together tell all rows apart: names or codes that stand under several parents.

    A category that most units have is no such column: the finer of two is under few of the coarser ones, unless both
    are called as levels are.
    """
    whole = [one for one in units if not one.nulls and one.distinct > 1 and score(one) > -2]
    for size in range(2, _MOST_PATH + 1):
        found: list[tuple[float, list[Column]]] = []
        for some_of in itertools.combinations(whole, size):
            ordered = by_fineness(some_of)
            if any(is_function(b, a) for a, b in itertools.pairwise(ordered)):
                continue  # the finer one alone does as well
            if of_rows and joined_codes(ordered)[1] != rows:
                continue
            if all(_nests(ordered[:k], ordered[k]) for k in range(1, size)):
                found.append((sum(map(score, ordered)) / size, ordered))
        if found:
            return max(found, key=lambda one: one[0])[1]
    # Parts of one code over many columns, in their order: numbers within numbers.
    parts = sorted((one for one in whole if one.is_digits), key=lambda one: one.place)
    if of_rows and len(parts) > 2 and len(parts) == len(whole) and joined_codes(parts)[1] == rows:
        return parts
    return None


def _nests(above: Sequence[Column], fine: Column) -> bool:
    ranks = [vocabulary.level_rank(one.name) for one in (*above, fine)]
    if all(rank is not None for rank in ranks) and sorted(ranks) == ranks and len(set(ranks)) == len(ranks):  # type: ignore[type-var]
        return True
    parents = joined_codes(above)[1]
    pairs = joined_codes([*above, fine])[1]
    multiplicity = pairs / fine.distinct
    return multiplicity < (0.5 * parents if parents >= 4 else 1.4)


# -- the levels ----------------------------------------------------------------------------------------------------


def nesting(path: Sequence[Column], units: Sequence[Column], constants: Sequence[Column], *, records: bool) -> Nesting:
    """How the units that ``path`` (one column, or several, coarsest first) tells apart nest among the other ``units``.

    ``constants``: columns with one value, one of which may name the root. ``records``: whether units have many rows, so
    that a column that is the same in every row of a unit says something of it.
    """
    found = Nesting(used={one.name for one in path})
    leaf = path[-1]
    names, parents = _relatives(path, units, found, records=records)
    chain = _chain(path, parents, found)
    if len(path) == 1 and _by_widths(leaf, chain, names, found):
        _padding([leaf], found)
        return found
    levels, called, inner = [], {}, found.inner_names
    for level in (*chain, *path):
        levels.append(level.name)
        found.used.add(level.name)
        name = names.get(level.name) or inner.get(level.name)
        if name is not None:
            called[level.name] = name.name
            found.used.add(name.name)
    separator = _separator(chain, path, found)
    if separator == "":  # the units' codes are whole with those that all have in common
        above = [one for one in constants if one.is_digits and vocabulary.level_rank(one.name) is not None]
        levels = [*(one.name for one in above), *levels]
        found.used |= {one.name for one in above}
    root = _root([one for one in constants if one.name not in found.used], levels)
    if root is not None:
        found.changes |= {"levels": (root.name, *levels)}
        found.used.add(root.name)
    else:
        found.changes |= {"levels": ("everything", *levels), "root": "ALL"}
    found.changes |= {"separator": separator, "names": called}
    _padding([*chain, *path] if separator is None else path, found)
    for doubtful in found.doubtful:
        without = tuple(level for level in found.changes["levels"] if level != doubtful)
        other = Choice("no, it only describes units", {"levels": without, "names": called})
        found.questions.append(
            Question(
                "levels",
                f"is {doubtful} a level of the geography, in whose units the smaller ones lie?",
                "yes",
                (other,),
            )
        )
    return found


def _relatives(
    path: Sequence[Column], units: Sequence[Column], found: Nesting, *, records: bool
) -> tuple[dict[str, Column], dict[str, tuple[Column, float]]]:
    """Of the columns beside ``path`` the names of its units, and those that may be units above them, each with how much
    speaks for it."""
    leaf = path[-1]
    codes, n_units = joined_codes(path)
    unit = Column("", 0, pa.array(codes.astype(str)))
    names: dict[str, Column] = {}
    parents: dict[str, tuple[Column, float]] = {}
    alike: list[Column] = []
    for one in units:
        if one in path or one.distinct < 2:
            continue
        if records and not is_function(unit, one):
            continue  # a category, or units of its own
        if one.is_unique and not records if len(path) > 1 else one_for_one(leaf, one):
            alike.append(one)
            continue
        inner = next((level for level in path[:-1] if one_for_one(level, one)), None)
        if inner is not None:
            names.setdefault(inner.name, one)
            continue
        says = _evidence(leaf, one, n_units, records=records)
        if says >= _LIKELY and one.distinct < n_units and not one.nulls:
            parents[one.name] = (one, says)
        elif _names_leaf(one, n_units, names, leaf):
            names[leaf.name] = one
        else:
            found.ignored[one.name] = "says something of units, and does not seem to be a level"
    texts = [one for one in alike if not one.is_digits and not one.is_coded_text]
    if texts and (leaf.name not in names):
        names[leaf.name] = max(texts, key=lambda one: (vocabulary.says(one.name, vocabulary.NAME), -one.place))
    for one in alike:
        if one is not names.get(leaf.name):
            found.ignored[one.name] = f"another name or code of the units in {leaf.name}"
    return names, parents


def _names_leaf(one: Column, n_units: int, names: dict[str, Column], leaf: Column) -> bool:
    if leaf.name in names or one.kind != "text" or one.is_coded_text or not (leaf.is_digits or leaf.is_coded_text):
        return False
    return one.distinct > 0.5 * n_units or (vocabulary.says(one.name, vocabulary.NAME) and one.distinct > 0.2 * n_units)


def _evidence(leaf: Column, one: Column, n_units: int, *, records: bool) -> float:
    """How much speaks for ``one`` being units above those in ``leaf``: a part of their code, a level's name, rows that
    stand together."""
    if begins_with(leaf, one) is not None:
        return 6.0
    if _ends_with(leaf, one):
        return 0.0
    coded = leaf.is_digits or leaf.is_coded_text
    if coded and n_units >= 2 * one.distinct and prefix_of(leaf, one) is not None:
        return 5.0
    rank, of_leaf = vocabulary.level_rank(one.name), vocabulary.level_rank(leaf.name)
    found = 0.0
    if rank is not None and (n_units >= 2 * one.distinct or one.stands_together):
        found += 3.0 if of_leaf is None or rank <= of_leaf else 1.0
    if one.stands_together and n_units >= 2 * one.distinct and one.distinct >= 2:
        found += 2.0
    if vocabulary.says(one.name, vocabulary.CODE) or one.is_coded_text:
        found += 1.0
    if vocabulary.says(one.name, vocabulary.CATEGORY) and not (rank is not None and one.distinct > 8):
        found -= 5.0
    if one.distinct > 0.8 * n_units:
        found -= 2.0
    return found


def _chain(path: Sequence[Column], parents: dict[str, tuple[Column, float]], found: Nesting) -> list[Column]:
    """The ``parents`` that nest in each other above ``path``, coarsest first; a code and its name together are one."""
    groups: list[tuple[Column, float, list[Column]]] = []
    for one, says in sorted(parents.values(), key=lambda pair: (-pair[1], -pair[0].distinct, pair[0].place)):
        same = next((k for k, (other, _, _) in enumerate(groups) if one_for_one(other, one)), None)
        if same is None:
            groups.append((one, says, [one]))
        else:
            groups[same][2].append(one)
    upper = path[0]
    taken: list[tuple[Column, float, list[Column]]] = []
    for one, says, members in groups:  # what is surest first: the others have to nest in it
        inside = len(path) == 1 or (one.distinct < upper.distinct and is_function(upper, one))
        if inside and all(is_function(a, b) for other, _, _ in taken for a, b in [_finer(one, other)]):
            taken.append((one, says, members))
            continue
        for other in members:
            found.ignored[other.name] = "divides the units in another way than the levels"
        if says >= _SURE and one.stands_together:
            text = f"{one.name} does not nest in the levels that were taken: is it one of them?"
            found.questions.append(Question("nesting", text, "no, it is left out"))
    chain: list[Column] = []
    for _, says, members in sorted(taken, key=lambda group: group[0].distinct):
        code = max(
            members, key=lambda c: (c.is_digits or c.is_coded_text, begins_with(path[-1], c) is not None, -c.place)
        )
        texts = sorted((c for c in members if c is not code and not c.is_digits), key=lambda c: -max(c.lengths))
        if texts:
            found.inner_names[code.name] = texts[0]
        for other in members:
            if other is not code and other not in texts[:1]:
                found.ignored[other.name] = f"another name or code of the units in {code.name}"
        chain.append(code)
        if says < _SURE:
            found.doubtful.append(code.name)
    return chain


def _finer(a: Column, b: Column) -> tuple[Column, Column]:
    return (a, b) if a.distinct >= b.distinct else (b, a)


def _by_widths(leaf: Column, chain: list[Column], names: dict[str, Column], found: Nesting) -> bool:
    """Say levels by parts of the code in ``leaf`` where its system has more than there are columns of them."""
    systems, _width = systems_of(leaf)
    named = any(one.named_by(leaf.name) for one in systems)
    parts = {begins_with(leaf, one) or prefix_of(leaf, one) for one in chain} - {None}
    if chain:
        systems = [one for one in systems if len(one.widths) > len(chain) + 1 and parts <= {*one.widths.values()}]
    if not systems or (not named and (chain or not _divides(leaf, systems[0]))):
        return False
    system = systems[0] if named else _unnamed(systems[0])
    found.changes |= {"geoid": leaf.name, "widths": dict(system.widths), "root": system.root if named else "ALL"}
    if len({*(tuple(one.widths.values()) for one in systems)}) > 1 or not named:
        others = tuple(
            Choice(f"{one.title}: {_said(one.widths)}", {"widths": dict(one.widths), "root": one.root})
            for one in systems[not named : 4]
        )
        flat = Choice(
            "the codes have no parts: one level of units below the root",
            {"widths": {"unit": max(system.widths.values())}},
        )
        found.questions.append(
            Question(
                "widths",
                f"do the first characters of the codes in {leaf.name} say in which larger unit each lies?",
                f"yes, {'as ' + system.title + ': ' if named else ''}{_said(system.widths)} characters",
                (*others, flat),
            )
        )
    lowest, called = list(system.widths)[-1], {}
    if names.get(leaf.name) is not None:
        called[lowest] = names[leaf.name].name
    for one in chain:
        width = begins_with(leaf, one) or prefix_of(leaf, one)
        level = next((name for name, size in system.widths.items() if size == width), None)
        upper = found.inner_names.get(one.name) or (None if one.is_digits or one.is_coded_text else one)
        found.ignored[one.name] = f"its units are those of parts of {leaf.name}"
        if level is not None and upper is not None:
            called[level] = upper.name
    found.changes["names"] = called
    found.used |= set(called.values())
    for name in called.values():
        found.ignored.pop(name, None)
    return True


def _unnamed(system: CodeSystem) -> CodeSystem:
    """``system`` with names of levels that say nothing of a country."""
    steps = list(system.widths.values())
    names = ["area", *(f"area {k}" for k in range(2, len(steps))), "unit"] if len(steps) > 1 else ["unit"]
    return dataclasses.replace(system, widths=dict(zip(names, steps, strict=True)), root="ALL")


def _said(widths: dict[str, int]) -> str:
    return ", ".join(f"{level} {width}" for level, width in widths.items())


def _divides(leaf: Column, system: CodeSystem) -> bool:
    """Whether parts of codes, of which no name says what they are, are shared by many of them."""
    if not leaf.has_zeros and not leaf.is_coded_text and leaf.values.to_pylist() != sorted(leaf.values.to_pylist()):
        return False  # numbers in no order
    top = next(iter(system.widths.values()))
    heads = pc.count_distinct(pc.utf8_slice_codeunits(padded(leaf)[0], 0, top)).as_py()
    return bool(1 <= heads <= leaf.distinct / 3)


def _root(constants: Sequence[Column], levels: Sequence[str]) -> Column | None:
    """The column of one value that is called as a level is: the lowest of these is the root."""
    ranked = [
        (rank, one) for one in constants if (rank := vocabulary.level_rank(one.name)) is not None and not one.nulls
    ]
    ranked = [(rank, one) for rank, one in ranked if (rank <= 2 and one.kind == "text") or one.has_zeros]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _separator(chain: Sequence[Column], path: Sequence[Column], found: Nesting) -> str | None:
    """What joins the columns of levels into identifiers; None where the values alone tell all units apart."""
    every = [*chain, *path]
    if len(path) > 1:
        fixed = all(one.is_digits and (len(one.lengths) == 1 or one.has_zeros) for one in every)
        return "" if fixed and any(one.has_zeros for one in every) else "/"
    for a, b in itertools.combinations(every, 2):
        if pc.any(pc.is_in(a.values, value_set=b.values)).as_py():
            return "/"
    return None


def _padding(levels: Sequence[Column], found: Nesting) -> None:
    """Give codes their zeros where they lost them, and those that are kept as numbers the length that they have."""
    pads: dict[str, int] = {}
    for one in levels:
        if not one.is_digits:
            continue
        systems, width = systems_of(one)
        below = next((k for k in (begins_with(other, one) for other in levels if other is not one) if k), None)
        if width is not None and systems:
            pads[one.name] = width
        elif (below is not None and max(one.lengths) < below) or (below is not None and len(one.lengths) > 1):
            pads[one.name] = below
        elif one.stored_number:
            pads[one.name] = max(one.lengths)
    lost = [name for name in pads if any(one.name == name and len(one.lengths) > 1 for one in levels)]
    if pads:
        found.changes["pad_zeros"] = pads
    if lost:
        found.questions.append(
            Question(
                "pad_zeros",
                f"codes in {some(lost)} seem to have lost their leading zeros: are they to be put back?",
                "yes, " + ", ".join(f"{name} has {pads[name]} digits" for name in lost),
                (
                    Choice(
                        "no, codes have different lengths",
                        {"pad_zeros": {k: v for k, v in pads.items() if k not in lost}},
                    ),
                ),
            )
        )


def repeats(rows: int, column: Column) -> float:
    """How many rows a value of ``column`` has in the mean."""
    return rows / max(1, column.distinct)


def constant_within(parents: Sequence[Column], column: Column) -> Column | None:
    """The level of which ``column`` is a function, with several rows for each of its units; None if there is none."""
    return next(
        (
            one
            for one in parents
            if one.distinct * 3 <= len(one) and column.distinct <= one.distinct and is_function(one, column)
        ),
        None,
    )
