"""The guess about a table, and the questions about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from topdown.tables.format import PLAIN, Format

Changes = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """An answer to a question: its label, and its changes to a `Guess`."""

    label: str
    changes: Changes = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """A question that the table does not answer. ``topic``: the part of the configuration that it is about. ``taken``:
    the assumption until it is answered; ``others``: the alternatives.
    """

    topic: str
    text: str
    taken: str
    others: tuple[Choice, ...] = ()


class TakenRows(NamedTuple):
    """What the rows of a table are: the ``name`` of input.rows, ``what`` each is, and the ``setting`` with a comment;
    no setting where nothing has to be said. ``may_be_sums``: whether some may be sums of others."""

    name: str
    what: str
    setting: str = ""
    may_be_sums: bool = False


LEAVES = TakenRows("leaves", "a unit", may_be_sums=True)
RECORDS = TakenRows("records", "a record", 'rows = "records"                      # every row is a record')
LONG = TakenRows(
    "long",
    "a unit and its categories",
    'rows = "long"                      # every row is a unit and its categories',
    may_be_sums=True,
)


@dataclass(frozen=True)
class Guess:
    """What a table seems to be: what its ``rows`` are, ``levels`` (columns, root first) or ``widths`` of the codes in
    ``geoid``, the columns with ``names``, the ``cells``, and the ``sums`` among the columns, which are left out;
    ``separator`` of paths, where levels share names; ``attributes`` of records; ``where``: columns with a value that
    chooses rows, and ``leave_out`` with those that leave rows out; ``pad_zeros``: columns of codes whose leading zeros
    were lost; ``ignored``: every other column with the reason why it is left out; ``questions``: what has to be asked.
    """

    form: Format = PLAIN
    rows: TakenRows = LEAVES
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
