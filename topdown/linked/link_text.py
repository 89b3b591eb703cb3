"""The universe of two linked tables from what a configuration, or a manifest, says of it: conditions as texts."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from topdown.errors import ConfigError, require_known
from topdown.linked.impossible import PersonFacts
from topdown.linked.member_groups import MemberGroup, MembersTotal
from topdown.linked.universe import Facility, Householder, Universe
from topdown.neighbours import MOST_MEMBERS
from topdown.wording import passes_as_name, shown
from topdown.workload.schema import Attribute, Schema, Zero

REST = "rest"
"""As many members as there are in a household."""

_CLAUSE = re.compile(r"\s*(?P<name>.+?)\s*(?:=\s*(?P<one>.+)|\bin\s*\[(?P<several>.*)\])\s*", re.DOTALL)
_VALUE = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([^"',]+?))\s*(?:,|$)""")
_NUMBERS = re.compile(r"\s*(\d+)\s*(?:(-|–)\s*(\d+)|(\+|or more|and more))?\s*")
_TOTAL = re.compile(r"\s*(?P<name>.+?)\s*(?:-\s*(?P<less>\d+))?\s*")
_FILE_NAME = re.compile(r"\w(?:[\w -]*\w)?")
_HOUSEHOLDS, _PERSONS = "households", "persons"
_KEYS = (
    "households",
    "persons",
    "singular",
    "householder",
    "members",
    "members_total",
    "depend_on_members",
    "facilities",
    "improbable",
)


def universe_of(schemas: Mapping[str, Schema], link: Mapping[str, Any], *, largest: int | None = None) -> Universe:
    """The universe of ``schemas``, by the names of the tables, and of ``link``, the section [link] as it is written.

    ``largest``: how many persons a household may have at most, where ``link`` does not say it and some size is open.
    Raises `ConfigError` naming the setting for what cannot be meant.
    """
    _require_keys(link, _KEYS, "link")
    names = str(link.get("households", _HOUSEHOLDS)), str(link.get("persons", _PERSONS))
    for name in names:
        if _FILE_NAME.fullmatch(name) is None:
            raise ConfigError(
                f"table {shown(name)}: a folder of the release has this name; make it of letters, digits, blanks, '-' "
                "and '_' alone"
            )
        require_known(name, schemas, "table of [schemas]:")
    households, persons = schemas[names[0]], schemas[names[1]]
    householder = _householder(link.get("householder"), persons)
    own = None if householder is None else householder.persons[0][0]
    groups = tuple(
        _group(one, f"link.members {number + 1}", households, persons, own)
        for number, one in enumerate(_tables(link.get("members"), "link.members"))
    )
    if not groups:
        raise ConfigError("link.members names no group of members; give one at least")
    return Universe(
        households,
        persons,
        groups,
        _members_total(link.get("members_total"), households, householder is not None, largest),
        householder,
        tuple(
            _facility(one, f"link.facilities {number + 1}", persons, own)
            for number, one in enumerate(_tables(link.get("facilities", []), "link.facilities"))
        ),
        names,
        _singular(link.get("singular", {}), names),
        _depending(link.get("depend_on_members", []), households),
    )


def facts_of(link: Mapping[str, Any]) -> PersonFacts | None:
    """Which attributes tell what is improbable, from [link.improbable]; None without it. Raises `ConfigError`."""
    given = link.get("improbable")
    if given is None:
        return None
    known = [one.name for one in fields(PersonFacts)]
    _require_keys(given, known, "link.improbable")
    return PersonFacts(
        **{"age": _text(given.get("age"), "link.improbable.age")}
        | {key: _text(value, f"link.improbable.{key}") for key, value in given.items()}
    )


def condition(text: object, schema: Schema, where: str) -> Zero:
    """The condition that ``text`` writes, of attributes or recodes of ``schema``: ``name = value`` or
    ``name in [value, value]``, several joined by "and". A value in quotes is taken as it is; in one without, * stands
    for any characters. Raises `ConfigError` naming ``where`` it stands.
    """
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{where}: {shown(text)} is no condition; write it as 'type in [married*]' or 'size = 1'")
    known = {one.name: one.categories for one in schema.attributes}
    known |= {one.name: one.categories for one in schema.recodes}
    found = []
    for clause in re.split(r"\s+and\s+(?=[^\[\]\"']*(?:=|\bin\s*\[))", text):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise ConfigError(
                f"{where}: {shown(clause)} is no condition; write it as 'type in [married*]' or 'size = 1'"
            )
        name = match["name"]
        require_known(name, known, f"attribute in {where}:")
        given = match["one"] if match["one"] is not None else match["several"]
        chosen: list[str] = []
        for quoted, value in _values(given, where):
            chosen += [value] if quoted else _like(value, known[name], name, where)
        for category in chosen:
            require_known(category, known[name], f"category of {shown(name)} in {where}:")
        found.append((name, tuple(dict.fromkeys(chosen))))
    return tuple(found)


def _values(text: str, where: str) -> list[tuple[bool, str]]:
    """The values that stand in ``text``, separated by commas, and whether each stands in quotes."""
    found, place = [], 0
    while place < len(text):
        match = _VALUE.match(text, place)
        if match is None:
            break
        quoted = match[3] is None
        found.append((quoted, (match[1] if match[1] is not None else match[2]) if quoted else match[3]))
        place = match.end()
    if place < len(text) or not found:
        raise ConfigError(f"{where}: the values {shown(text)} do not read; separate them by commas, texts in quotes")
    return found


def _like(value: str, categories: Sequence[str], name: str, where: str) -> list[str]:
    """The categories that ``value`` stands for: itself, or, with * in it, those that are like it."""
    if "*" not in value:
        return [value]
    found = [one for one in categories if fnmatch.fnmatchcase(one, value)]
    if not found:
        raise ConfigError(f"{where}: no category of {shown(name)} is like {shown(value)}; correct it")
    return found


def _singular(given: Any, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The section [link.singular]: what one record of a table is called, by the table's name."""
    _require_keys(given, names, "link.singular")
    for name, one in given.items():
        if not passes_as_name(one):
            raise ConfigError(f"link.singular.{name} is {shown(one)}; give a short word, such as 'firm'")
    return tuple(given.items())


def _householder(given: Any, persons: Schema) -> Householder | None:
    if given is None:
        return None
    _require_keys(given, ("persons", "same"), "link.householder")
    same = given.get("same", {})
    if not isinstance(same, Mapping) or not all(isinstance(one, str) for one in same.values()):
        raise ConfigError("link.householder.same: give pairs of attributes: one of each table")
    return Householder(condition(given.get("persons"), persons, "link.householder.persons"), tuple(same.items()))


def _persons_of(given: Any, name: str, persons: Schema, own: str | None, where: str) -> tuple[Zero, ...]:
    """Which persons a group or a facility has; without a word of it, those whose relationship has its name."""
    if given is None:
        if own is None:
            raise ConfigError(f"{where}.persons is missing; say which persons it has, [] for all of them")
        return (condition(f'{own} = "{name}"', persons, where),)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence):
        raise ConfigError(f"{where}.persons: give a condition, or a list of conditions of which one holds")
    return tuple(condition(text, persons, f"{where}.persons") for text in texts) or ((),)


def _group(given: Any, where: str, households: Schema, persons: Schema, own: str | None) -> MemberGroup:
    _require_keys(given, ("group", "persons", "per"), where)
    name = _text(given.get("group"), f"{where}.group")
    per = given.get("per", REST)
    several = (
        tuple((condition(text, households, f"{where}.per"), *_range(one, where)) for text, one in per.items())
        if isinstance(per, Mapping)
        else (((), *_range(per, where)),)
    )
    return MemberGroup(name, _persons_of(given.get("persons"), name, persons, own, where), several)


def _range(given: Any, where: str) -> tuple[int, int | None]:
    """How many members of a group: 1, "rest" (any number of them), or [least, most]."""
    if given == REST:
        return 0, None
    pair = [given, given] if _is_number(given) else given
    if (
        isinstance(pair, Sequence)
        and len(pair) == 2
        and _is_number(pair[0])
        and (pair[1] == REST or (_is_number(pair[1]) and pair[1] >= pair[0]))
    ):
        return pair[0], None if pair[1] == REST else pair[1]
    raise ConfigError(f"{where}.per: {shown(given)} is no number of members; give 1, [1, 2], [1, 'rest'] or 'rest'")


def _is_number(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _depending(given: Any, households: Schema) -> tuple[str, ...]:
    """link.depend_on_members: attributes of households that change with their members."""
    where = "link.depend_on_members"
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigError(f"{where} is {shown(given)}; give a list of attributes")
    for name in given:
        require_known(_text(name, where), households.names, f"attribute in {where}:")
    return tuple(dict.fromkeys(given))


def _members_total(given: Any, households: Schema, has_householder: bool, largest: int | None) -> MembersTotal:
    """The section [link.members_total]: size = "size - 1" says that a household has so many members beside its
    householder as its category of size says, less one."""
    where = "link.members_total"
    _require_keys(given, ("size", "open", "largest"), where)
    match = _TOTAL.fullmatch(_text(given.get("size"), f"{where}.size"))
    assert match is not None  # nosec B101 # narrows a type: any text matches
    attribute = households.attribute(match["name"])
    less = int(match["less"] or 0)
    if has_householder and less != 1:
        raise ConfigError(
            f"{where}.size: whom link.householder describes is no member, and is counted by {shown(attribute.name)}; "
            f"write '{attribute.name} - 1'"
        )
    own = given.get("largest", largest)
    if own is not None and (not _is_number(own) or own < 1):
        raise ConfigError(f"{where}.largest is {shown(own)}; give a whole number of 1 or more")
    if own is not None and own > MOST_MEMBERS:
        raise ConfigError(f"{where}.largest is {shown(own)}; give at most {MOST_MEMBERS:,}")
    opened = given.get("open")
    if opened is not None:
        require_known(opened, attribute.categories, f"category of {shown(attribute.name)} in {where}.open:")
    numbers = [_of_category(attribute, category, opened, own) for category in attribute.categories]
    if less and min(low for low, _ in numbers) < less:
        raise ConfigError(f"{where}.size: a category of {shown(attribute.name)} is below {less}; correct one of them")
    return MembersTotal(
        attribute.name, tuple(low - less for low, _ in numbers), tuple(high - less for _, high in numbers)
    )


def _of_category(attribute: Attribute, category: str, opened: str | None, largest: int | None) -> tuple[int, int]:
    match = _NUMBERS.fullmatch(category)
    if match is None:
        raise ConfigError(
            f"link.members_total: category {shown(category)} of {shown(attribute.name)} is no number; write it as '3', "
            "'2-5' or '7+'"
        )
    low = int(match[1])
    if match[4] is None and category != opened:
        high = low if match[3] is None else int(match[3])
        if largest is not None and high > largest:
            raise ConfigError(
                f"link.members_total: category {shown(category)} of {shown(attribute.name)} has up to {high}, and at "
                f"most {largest} is stated; state {high} at least, as largest or in privacy.units, or take the "
                "category out"
            )
        return low, high
    if category != opened:
        raise ConfigError(f"link.members_total: category {shown(category)} is open; say so: open = {shown(category)}")
    if largest is None:
        raise ConfigError(
            f"link.members_total: {shown(category)} is open, and how many one may have at most is not stated; state "
            "it, as largest = 12 or in privacy.units as { household = 12 }"
        )
    if largest < low:
        raise ConfigError(f"link.members_total: at most {largest} is below the open category {shown(category)}")
    return low, largest


def _facility(given: Any, where: str, persons: Schema, own: str | None) -> Facility:
    _require_keys(given, ("name", "persons", "counted"), where)
    name, counted = _text(given.get("name"), f"{where}.name"), given.get("counted", True)
    if not isinstance(counted, bool):
        raise ConfigError(f"{where}.counted is {shown(counted)}; give true or false")
    return Facility(name, _persons_of(given.get("persons"), name, persons, own, where), counted)


def _text(given: Any, where: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(f"{where} is {'missing' if given is None else shown(given)}; give a text")
    return given


def _tables(given: Any, where: str) -> Sequence[Any]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigError(f"{where} is {'missing' if given is None else shown(given)}; write it as [[{where}]]")
    return given


def _require_keys(given: Any, known: Sequence[str], where: str) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is {'missing' if given is None else shown(given)}; give its settings")
    for key in given:
        require_known(key, known, f"key in {where}:")
