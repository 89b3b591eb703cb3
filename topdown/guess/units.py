"""Which columns identify units, and how units nest: columns that are functions of finer ones, and prefixes of codes."""

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
from topdown.guess.column_evidence import ColumnEvidence, is_function, joined_codes, one_for_one
from topdown.guess.found import Changes, Choice, Question, some

_SURE = 3.0
_LIKELY = 2.0
_MOST_PATH = 5
_HEAD = re.compile(r"[0-9]{4}[0-9A-Z]{3}US|20[0-9]{2}A[0-9]{4}")
_POSTAL = frozenset(["plz", "zip", "zipcode", "zcta", "postcode", "postal", "cap", "cep"])


@dataclass
class Nesting:
    """How units nest, as fields of a `Guess` (``changes``), with the columns that are used for it (``used``), those
    that only describe units (``ignored``), and questions. ``inner_names``: columns with names of levels above the
    lowest; ``doubtful``: columns that are uncertain levels.
    """

    changes: Changes = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    ignored: dict[str, str] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    inner_names: dict[str, ColumnEvidence] = field(default_factory=dict)
    doubtful: list[str] = field(default_factory=list)


# -- codes ---------------------------------------------------------------------------------------------------------


def padded(column: ColumnEvidence) -> tuple[pa.Array, int | None]:
    """The codes in ``column`` with lost leading zeros restored, and their length where any were lost; else
    unchanged.
    """
    lengths = column.lengths
    if len(lengths) != 2 or lengths[1] - lengths[0] != 1 or lengths[1] < 3:
        return column.values, None
    if not column.is_digits:  # letters stand in some of the codes that are long enough: 1004 beside 2A004
        short = column.values.filter(pc.equal(pc.utf8_length(column.values), lengths[0]))
        if not pc.all(pc.match_substring_regex(short, "^[0-9]+$")).as_py():
            return column.values, None
    return pc.utf8_lpad(column.values, lengths[1], "0"), lengths[1]


def systems_of(column: ColumnEvidence) -> tuple[list[CodeSystem], int | None]:
    """The systems to which the codes of ``column`` may belong, those that its name suggests first; and the length to
    which its codes have to be padded, None where they are complete. Postal codes belong to none.
    """
    if is_postal(column):
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


def is_postal(column: ColumnEvidence) -> bool:
    """Whether a column has a name for postal codes."""
    return vocabulary.says(column.name, _POSTAL)


def begins_with(code: ColumnEvidence, parent: ColumnEvidence) -> int | None:
    """How many first characters of ``code``, with its zeros, equal the ``parent`` in every row; None if they do not."""
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


def _ends_with(code: ColumnEvidence, part: ColumnEvidence) -> bool:
    """Whether ``part`` is the end of ``code`` in every row, as a county's number within its state is."""
    if not part.is_digits or part.distinct >= code.distinct or part.nulls or code.nulls:
        return False
    parts = pc.utf8_lpad(part.values, max(part.lengths), "0").take(pa.array(part.codes))
    ends = pc.utf8_slice_codeunits(padded(code)[0].take(pa.array(code.codes)), -max(part.lengths))
    return bool(pc.all(pc.equal(parts, ends)).as_py())


def prefix_of(code: ColumnEvidence, named: ColumnEvidence) -> int | None:
    """The smallest number of characters of ``code`` that decide the text in ``named`` and are decided by it."""
    if code.nulls or named.nulls:
        return None
    whole, _ = padded(code)
    longest = max(pc.utf8_length(whole).to_pylist())
    for length in range(1, min(longest, 12)):
        head = ColumnEvidence("", 0, pc.utf8_slice_codeunits(whole, 0, length).take(pa.array(code.codes)))
        if head.distinct == named.distinct and one_for_one(head, named):
            return length
        if head.distinct > named.distinct:
            return None
    return None


# -- how much a column looks like units ----------------------------------------------------------------------------


def score(column: ColumnEvidence) -> float:
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


def by_fineness(columns: Sequence[ColumnEvidence]) -> list[ColumnEvidence]:
    """``columns`` from the coarsest to the finest, by what their names say and how many units they have."""

    def key(one: ColumnEvidence) -> tuple[int, int]:
        rank = vocabulary.level_rank(one.name)
        return (3 if rank is None else rank), one.distinct

    ranked = all(vocabulary.level_rank(one.name) is not None for one in columns)
    return sorted(columns, key=key if ranked else lambda one: (one.distinct, one.place))


def path_to(rows: int, units: Sequence[ColumnEvidence], *, of_rows: bool = True) -> list[ColumnEvidence] | None:
    """Columns, coarsest first, that identify all rows only together: names or codes that repeat under several parents.
    A category that most units have is no such column: a finer column's values lie under few of the coarser one's,
    unless both have names of levels.
    """
    whole = [one for one in units if not one.nulls and one.distinct > 1 and score(one) > -2]
    for size in range(2, _MOST_PATH + 1):
        found: list[tuple[float, list[ColumnEvidence]]] = []
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


def _nests(above: Sequence[ColumnEvidence], fine: ColumnEvidence) -> bool:
    ranks = [vocabulary.level_rank(one.name) for one in (*above, fine)]
    if all(rank is not None for rank in ranks) and sorted(ranks) == ranks and len(set(ranks)) == len(ranks):  # type: ignore[type-var]
        return True
    parents = joined_codes(above)[1]
    pairs = joined_codes([*above, fine])[1]
    multiplicity = pairs / fine.distinct
    return multiplicity < (0.5 * parents if parents >= 4 else 1.4)


# -- the levels ----------------------------------------------------------------------------------------------------


def nesting(
    path: Sequence[ColumnEvidence],
    units: Sequence[ColumnEvidence],
    constants: Sequence[ColumnEvidence],
    *,
    records: bool,
) -> Nesting:
    """How the units that ``path`` identifies (one column, or several, coarsest first) nest in the other ``units``.

    ``constants``: columns with one value, one of which may name the root. ``records``: whether units have many rows, so
    that a column that is the same in every row of a unit says something of it.
    """
    found = Nesting(used={one.name for one in path})
    leaf = path[-1]
    names, parents = _relatives(path, units, found, records=records)
    chain = _chain(path, parents, found)
    beside = [one.name for one in (*units, *constants) if one is not leaf]
    if len(path) == 1 and _by_widths(leaf, chain, names, found, beside):
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
    path: Sequence[ColumnEvidence], units: Sequence[ColumnEvidence], found: Nesting, *, records: bool
) -> tuple[dict[str, ColumnEvidence], dict[str, tuple[ColumnEvidence, float]]]:
    """Among the columns beside ``path`` the names of its units, and possible units above them, each with the strength
    of the evidence.
    """
    leaf = path[-1]
    codes, n_units = joined_codes(path)
    unit = ColumnEvidence("", 0, pa.array(codes.astype(str)))
    names: dict[str, ColumnEvidence] = {}
    parents: dict[str, tuple[ColumnEvidence, float]] = {}
    alike: list[ColumnEvidence] = []
    for one in units:
        if one in path or one.distinct < 2:
            continue
        if records and not is_function(unit, one):
            continue  # a category, or units of its own
        if one.is_unique and not records if len(path) > 1 else one_for_one(leaf, one):
            alike.append(one)
            continue
        inner = _called(path, one)
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
    texts = [one for one in alike if not one.is_numeric and not one.is_coded_text]
    if texts and (leaf.name not in names):
        names[leaf.name] = max(texts, key=lambda one: (vocabulary.says(one.name, vocabulary.NAME), -one.place))
    for one in alike:
        if one is not names.get(leaf.name):
            found.ignored[one.name] = f"another name or code of the units in {leaf.name}"
    return names, parents


def _called(path: Sequence[ColumnEvidence], one: ColumnEvidence) -> ColumnEvidence | None:
    """The column of ``path`` whose units have their names in ``one``: it is the same wherever the unit is, and differs
    between units of one parent."""
    for place, level in enumerate(path):
        if place < len(path) - 1 and one_for_one(level, one):
            return level
        named = (
            one.kind == "text"
            and not one.is_numeric
            and not one.is_coded_text
            and vocabulary.says(one.name, vocabulary.NAME)
        )
        if place == 0 or not named or 2 * one.distinct < level.distinct:
            continue
        codes, count = joined_codes(path[: place + 1])
        above, _ = joined_codes(path[:place])
        unit, parent = (ColumnEvidence("", 0, pa.array(some_of.astype(str))) for some_of in (codes, above))
        if is_function(unit, one) and not is_function(parent, one) and 2 * joined_codes([parent, one])[1] > count:
            return level
    return None


def _names_leaf(one: ColumnEvidence, n_units: int, names: dict[str, ColumnEvidence], leaf: ColumnEvidence) -> bool:
    if (
        leaf.name in names
        or one.kind != "text"
        or one.is_numeric
        or one.is_coded_text
        or not (leaf.is_digits or leaf.is_coded_text)
    ):
        return False
    return one.distinct > 0.5 * n_units or (vocabulary.says(one.name, vocabulary.NAME) and one.distinct > 0.2 * n_units)


def _evidence(leaf: ColumnEvidence, one: ColumnEvidence, n_units: int, *, records: bool) -> float:
    """The strength of the evidence that ``one`` has units above those in ``leaf``: a prefix of their code, the name of
    a level, rows that are grouped by it.
    """
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


def _chain(
    path: Sequence[ColumnEvidence], parents: dict[str, tuple[ColumnEvidence, float]], found: Nesting
) -> list[ColumnEvidence]:
    """The ``parents`` that nest in each other above ``path``, coarsest first; a code and its name together are one."""
    groups: list[tuple[ColumnEvidence, float, list[ColumnEvidence]]] = []
    for one, says in sorted(parents.values(), key=lambda pair: (-pair[1], -pair[0].distinct, pair[0].place)):
        same = next((k for k, (other, _, _) in enumerate(groups) if one_for_one(other, one)), None)
        if same is None:
            groups.append((one, says, [one]))
        else:
            groups[same][2].append(one)
    upper = path[0]
    taken: list[tuple[ColumnEvidence, float, list[ColumnEvidence]]] = []
    for one, says, members in groups:  # the most certain first: the others have to nest with it
        inside = len(path) == 1 or (one.distinct < upper.distinct and is_function(upper, one))
        pairs = (sorted((one, other), key=lambda column: -column.distinct) for other, _, _ in taken)
        if inside and all(is_function(finer, coarser) for finer, coarser in pairs):
            taken.append((one, says, members))
            continue
        for other in members:
            found.ignored[other.name] = "divides the units in another way than the levels"
        if says >= _SURE and one.stands_together:
            text = f"{one.name} does not nest in the levels that were taken: is it one of them?"
            found.questions.append(Question("nesting", text, "no, it is left out"))
    chain: list[ColumnEvidence] = []
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


def _by_widths(
    leaf: ColumnEvidence,
    chain: list[ColumnEvidence],
    names: dict[str, ColumnEvidence],
    found: Nesting,
    beside: Sequence[str],
) -> bool:
    """Define levels by prefixes of the code in ``leaf`` where its system has more levels than there are columns; names
    of columns ``beside`` it distinguish systems with the same codes.
    """
    systems, _width = systems_of(leaf)
    if leaf.name in names and not any(one.named_by(leaf.name) for one in systems):
        by_names = [one for one in systems if one.named_by(names[leaf.name].name)]
        systems, named = by_names or systems, bool(by_names)
    else:
        named = any(one.named_by(leaf.name) for one in systems)
    own = vocabulary.words_of("geoid")
    systems = sorted(
        systems,
        key=lambda one: not any(one.named_by(name) and not vocabulary.says(name, frozenset(own)) for name in beside),
    )
    parts = {begins_with(leaf, one) or prefix_of(leaf, one) for one in chain} - {None}
    if chain:
        systems = [one for one in systems if len(one.widths) > len(chain) + 1 and parts <= {*one.widths.values()}]
    if not systems or (not named and (chain or not _divides(leaf, systems[0]))):
        return False
    system = systems[0] if named else _unnamed(systems[0])
    found.changes |= {"geoid": leaf.name, **_beneath_common(leaf, system)}
    if len({*(tuple(one.widths.values()) for one in systems)}) > 1 or not named:
        others = tuple(
            Choice(f"{one.title}: {_said(one.widths)}", _beneath_common(leaf, one)) for one in systems[not named : 4]
        )
        flat = Choice(
            "the codes have no parts: one level of units below the root",
            {"widths": {"unit": max(system.widths.values())}, "root": "ALL", "root_level": "everything"},
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
        level = next((name for name, size in found.changes["widths"].items() if size == width), None)
        upper = found.inner_names.get(one.name) or (None if one.is_digits or one.is_coded_text else one)
        found.ignored[one.name] = f"its units are those of parts of {leaf.name}"
        if level is not None and upper is not None:
            called[level] = upper.name
    found.changes["names"] = called
    found.used |= set(called.values())
    for name in called.values():
        found.ignored.pop(name, None)
    return True


def _beneath_common(leaf: ColumnEvidence, system: CodeSystem) -> Changes:
    """The widths of the levels of ``system``, and the root: what all codes of ``leaf`` begin with, where they lie in
    one unit of an upper level."""
    codes, widths = padded(leaf)[0], dict(system.widths)
    found: Changes = {"root": system.root, "root_level": "nation"}
    for level, width in list(system.widths.items())[:-1]:
        heads = pc.unique(pc.utf8_slice_codeunits(codes, 0, width))
        if len(heads) > 1:
            break
        del widths[level]
        found = {"root": heads[0].as_py(), "root_level": level}
    return found | {"widths": widths}


def _unnamed(system: CodeSystem) -> CodeSystem:
    """``system`` with names of levels that name no country."""
    steps = list(system.widths.values())
    names = ["area", *(f"area {k}" for k in range(2, len(steps))), "unit"] if len(steps) > 1 else ["unit"]
    return dataclasses.replace(system, widths=dict(zip(names, steps, strict=True)), root="ALL")


def _said(widths: dict[str, int]) -> str:
    return ", ".join(f"{level} ({width})" for level, width in widths.items())


def _divides(leaf: ColumnEvidence, system: CodeSystem) -> bool:
    """Whether parts of codes, of which no name says what they are, are shared by many of them."""
    if not leaf.has_zeros and not leaf.is_coded_text and leaf.values.to_pylist() != sorted(leaf.values.to_pylist()):
        return False  # numbers in no order
    top = next(iter(system.widths.values()))
    heads = pc.count_distinct(pc.utf8_slice_codeunits(padded(leaf)[0], 0, top)).as_py()
    return bool(1 <= heads <= leaf.distinct / 3)


def _root(constants: Sequence[ColumnEvidence], levels: Sequence[str]) -> ColumnEvidence | None:
    """The column of one value that is called as a level is: the lowest of these is the root."""
    ranked = [
        (rank, one) for one in constants if (rank := vocabulary.level_rank(one.name)) is not None and not one.nulls
    ]
    ranked = [(rank, one) for rank, one in ranked if (rank <= 2 and one.kind == "text") or one.has_zeros]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _separator(chain: Sequence[ColumnEvidence], path: Sequence[ColumnEvidence], found: Nesting) -> str | None:
    """The separator that joins the columns of levels into identifiers; None where the values alone identify all
    units.
    """
    every = [*chain, *path]
    if len(path) > 1:
        fixed = all(one.is_digits and (len(one.lengths) == 1 or one.has_zeros) for one in every)
        return "" if fixed and any(one.has_zeros for one in every) else "/"
    for a, b in itertools.combinations(every, 2):
        if pc.any(pc.is_in(a.values, value_set=b.values)).as_py():
            return "/"
    return None


def _padding(levels: Sequence[ColumnEvidence], found: Nesting) -> None:
    """Give codes their zeros where they lost them, and those that are kept as numbers the length that they have."""
    pads: dict[str, int] = {}
    for one in levels:
        systems, width = systems_of(one)
        if not one.is_digits and width is None:
            continue
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


def repeats(rows: int, column: ColumnEvidence) -> float:
    """How many rows a value of ``column`` has in the mean."""
    return rows / max(1, column.distinct)


def constant_within(parents: Sequence[ColumnEvidence], column: ColumnEvidence) -> ColumnEvidence | None:
    """The level of which ``column`` is a function, with several rows for each of its units; None if there is none."""
    return next(
        (
            one
            for one in parents
            if one.distinct * 3 <= len(one) and column.distinct <= one.distinct and is_function(one, column)
        ),
        None,
    )
