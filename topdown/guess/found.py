"""What was found of a table, and what has to be asked about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from topdown.tables.format import PLAIN, Format

Changes = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """An answer to a question: what it is called, and what it changes in a `Guess`."""

    label: str
    changes: Changes = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """What a table does not say. ``topic``: the part of the configuration that it is about. ``taken``: what was taken
    until somebody answers; ``others``: what it may be instead."""

    topic: str
    text: str
    taken: str
    others: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Guess:
    """What a table seems to be: ``levels`` (columns, root first) or ``widths`` of the codes in ``geoid``, the columns
    with ``names``, the ``cells``, and the ``sums`` among the columns, which are left out; ``separator`` of paths, where
    levels share names; ``attributes`` of records; ``where``: columns with a value that chooses rows, and ``leave_out``
    with those that leave rows out; ``pad_zeros``: columns of codes whose leading zeros were lost; ``ignored``: every
    other column with the reason why it is left out; ``questions``: what has to be asked.
    """

    form: Format = PLAIN
    rows: str = "leaves"
    count: str | None = None
    levels: tuple[str, ...] = ()
    root: str | None = None
    separator: str | None = None
    geoid: str | None = None
    widths: dict[str, int] = field(default_factory=dict)
    root_level: str = "nation"
    names: dict[str, str] = field(default_factory=dict)
    cells: tuple[str, ...] = ()
    sums: dict[str, list[str]] = field(default_factory=dict)
    attributes: dict[str, list[str]] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    leave_out: dict[str, list[str]] = field(default_factory=dict)
    pad_zeros: dict[str, int] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    questions: tuple[Question, ...] = ()

    @property
    def level_names(self) -> list[str]:
        """The levels, root first."""
        return [self.root_level, *self.widths] if self.widths else list(self.levels)

    def answered(self, question: Question, choice: Choice | None) -> Guess:
        """This guess with an answer to one of its questions; ``choice`` None: what was taken is right."""
        rest = tuple(one for one in self.questions if one is not question)
        found = replace(self, questions=rest, **({} if choice is None else choice.changes))
        used = {*found.cells, *found.attributes, *found.sums}
        left = [name for name in self.cells if name not in used]
        ignored = {name: why for name, why in found.ignored.items() if name not in used}
        return replace(found, ignored=ignored | dict.fromkeys(left, "left out by your answer"))

    def asking(self, *questions: Question) -> Guess:
        """This guess with more ``questions``."""
        return replace(self, questions=(*self.questions, *questions))


def some(names: Sequence[str], most: int = 4) -> str:
    """The first few of ``names``, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
