"""Prints and writes the expected errors of a plan for `topdown check`; no count is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from topdown.planning.expected import OPEN
from topdown.tables.output_formats import CSV, JSON, format_of, write_frame
from topdown.tables.tidy import named_failures
from topdown.wording import unquoted

USUAL = 0.95
"""The confidence of the lines that every check prints."""

FORMATS = (CSV, JSON)
"""The formats of the table of errors."""

_COLUMNS = {
    "noise_sd": "noise",
    "sd": "sd",
    "margin": "margin",
    "margin_largest": "largest",
}


def error_lines(errors: pd.DataFrame) -> Iterator[str]:
    """One line per level of ``errors`` (`expected_errors` of the measured cells at 95 %): the margin of measured
    counts, and that of least squares over all levels for the median unit.
    """
    for row in errors.to_dict("records"):
        level = row["level"]
        if row["sd"] == 0:
            yield f"error     {unquoted(level)}: none, published exactly"
            continue
        measured = "not measured"
        if not math.isnan(row["noise_margin"]):
            measured = f"95 % of measured counts within {row['noise_margin']:,.4g} of the truth"
        yield f"error     {unquoted(level)}: {measured}; by least squares {_within(row['margin'])}"


def _within(margin: float) -> str:
    return "how far is not known" if math.isnan(margin) else f"within {margin:,.1f}"


def error_table(
    errors: pd.DataFrame, confidence: float, upward: str | None = None, all_levels: pd.DataFrame | None = None
) -> Iterator[str]:
    """The table of `expected_errors` as lines of text; with ``upward`` for a release whose upward pass starts there,
    next to least squares over ``all_levels``.
    """
    rows = [("level", "query", "answers", *_COLUMNS.values())]
    for row in errors.to_dict("records"):
        numbers = (number_text(row[name]) for name in _COLUMNS)
        rows.append((unquoted(row["level"]), unquoted(row["query"]), f"{row['answers']:,}", *numbers))
    how = "by least squares" if upward is None else f"by least squares {unquoted(upward)} upwards, families below it"
    yield f"errors    {how}; margins at {confidence:.6g}, of the median and of any one unit"
    yield from lined_up(rows)
    laws = [law for law in dict.fromkeys(errors["law"]) if law != OPEN]
    yield f"          margins by law: {'; '.join(laws)}"
    if all_levels is not None:
        ratio = np.divide(errors["sd"], all_levels["sd"], out=np.ones(len(errors)), where=all_levels["sd"] > 0)
        worst = errors.loc[int(np.argmax(ratio))]
        at = f"{unquoted(str(worst['level']))}, {unquoted(str(worst['query']))}"
        yield f"          sd beside that of least squares over all levels: {ratio.max():.3f} times at most ({at})"


_OF_UNITS = {
    "sd_mean": "mean",
    "sd": "median",
    "sd_90": "90 % within",
    "sd_largest": "largest",
    "margin": "margin",
    "margin_largest": "largest margin",
}


def area_table(errors: pd.DataFrame, confidence: float) -> Iterator[str]:
    """The standard deviations of `expected_errors` at units and areas as lines of text: their mean, median, 90th
    percentile and largest, with the unit or area where it is reached.
    """
    yield f"areas     standard deviations; margins at {confidence:.6g}, of the median and of any one unit or area"
    rows = [("level or areas", "query", "units", *_OF_UNITS.values(), "worst")]
    for row in errors.to_dict("records"):
        numbers = (number_text(row[name]) for name in _OF_UNITS)
        named = (unquoted(row["level"]), unquoted(row["query"]))
        rows.append((*named, f"{row['units']:,}", *numbers, unquoted(row["worst"])))
    yield from lined_up(rows)


def lined_up(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """``rows`` of text as lines with aligned columns, the first two of which are words."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for line in rows:
        padded = list(zip(line, widths, strict=True))
        cells = [text.ljust(w) for text, w in padded[:2]] + [text.rjust(w) for text, w in padded[2:]]
        yield f"          {'  '.join(cells).rstrip()}"


def number_text(value: float) -> str:
    """``value`` as text with four digits; "-" for unknown values, "any" for infinite ones."""
    return (
        "-"
        if math.isnan(value)
        else "any"
        if math.isinf(value)
        else f"{value:,.4g}"
        if value < 1e4
        else f"{value:,.0f}"
    )


def require_format(path: Path) -> Path:
    """Refuse a file name whose ending is not that of one of `FORMATS`. Raises `ConfigError`."""
    format_of(path, FORMATS)
    return path


def write_errors(path: Path, errors: pd.DataFrame, confidence: float) -> None:
    """Write ``errors`` and the confidence as a CSV table, or as JSON records; values that are not determined or not
    measured are empty, or null. Raises `DataError` where it cannot be written.
    """
    with named_failures(path):
        write_frame(path, errors.assign(confidence=confidence).replace([math.inf, math.nan], None), {}, FORMATS)
