"""How a table of answers is printed: for people, as CSV, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topdown.cli.options import AnswerFormat
from topdown.machine.terminal import answer
from topdown.wording import escaped

if TYPE_CHECKING:
    import pandas as pd


def print_table(found: pd.DataFrame, form: AnswerFormat, number: str = "{:z,.1f}") -> None:
    """Print ``found``. As a table for people, numbers that are not whole are written in the format ``number``, and a
    column of notes appears only where there are notes.
    """
    from topdown.tables.tidy import csv_text, records_text

    if form is AnswerFormat.csv:
        answer(csv_text(found))
    elif form is AnswerFormat.json:
        answer(records_text(found))
    else:
        idle = "note" in found and not (found["note"] != "").any()
        kept = found.drop(columns="note") if idle else found
        shown = kept.map(lambda value: escaped(value) if isinstance(value, str) else value)
        texts = {name: "" for name in shown.columns if _is_text(shown[name])}
        answer(shown.fillna(texts).to_string(index=False, float_format=number.format))


def _is_text(column: pd.Series[Any]) -> bool:
    """Whether a column has texts, or nothing in the place of texts."""
    return bool(column.map(lambda value: isinstance(value, str)).any()) or (
        column.dtype == object and bool(column.isna().all())
    )
