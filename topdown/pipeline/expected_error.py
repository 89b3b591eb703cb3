"""What `topdown check` says and writes of the errors that a plan will give: no count is looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from topdown.errors import ConfigError
from topdown.planning.expected import OPEN, noise_margin
from topdown.privacy.plan import Plan
from topdown.tables.tidy import frame_batches, write_csv, write_json
from topdown.wording import shown_path, unquoted

USUAL = 0.95
"""The confidence of the lines that every check prints."""

FORMATS = (".csv", ".json")
"""What the table of errors is written as, by the file's ending."""

_COLUMNS = {
    "noise_sd": "noise",
    "sd": "sd",
    "margin": "margin",
    "margin_largest": "largest",
}


def error_lines(plan: Plan, errors: pd.DataFrame) -> Iterator[str]:
    """One line per level of ``errors`` (`expected_errors` of the measured cells at 95 %): the error that measured
    counts stay within, and what least squares over all levels makes of it for the median unit."""
    for row in errors.to_dict("records"):
        level = row["level"]
        if row["sd"] == 0:
            yield f"error     {unquoted(level)}: none, published exactly"
            continue
        law = plan.law(level)
        measured = "not measured"
        if law is not None:
            measured = f"95 % of measured counts within {noise_margin(law, USUAL):,.4g} of the truth"
        yield f"error     {unquoted(level)}: {measured}; by least squares {_within(row['margin'])}"


def _within(margin: float) -> str:
    return "how far is not known" if math.isnan(margin) else f"within {margin:,.1f}"


def error_table(
    errors: pd.DataFrame, confidence: float, upward: str | None = None, all_levels: pd.DataFrame | None = None
) -> Iterator[str]:
    """The table of `expected_errors` as lines of text; with ``upward`` that of a release whose upward pass starts
    there, beside that of least squares over ``all_levels``."""
    rows = [("level", "query", "answers", *_COLUMNS.values())]
    for row in errors.to_dict("records"):
        numbers = (_number(row[name]) for name in _COLUMNS)
        rows.append((unquoted(row["level"]), unquoted(row["query"]), f"{row['answers']:,}", *numbers))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    how = "by least squares" if upward is None else f"by least squares {unquoted(upward)} upwards, families below it"
    yield f"errors    {how}; margins at {confidence:.6g}, of the median and of any one unit"
    for line in rows:
        padded = list(zip(line, widths, strict=True))
        cells = [text.ljust(w) for text, w in padded[:2]] + [text.rjust(w) for text, w in padded[2:]]
        yield f"          {'  '.join(cells).rstrip()}"
    laws = [law for law in dict.fromkeys(errors["law"]) if law != OPEN]
    yield f"          margins by law: {'; '.join(laws)}"
    if all_levels is not None:
        ratio = np.divide(errors["sd"], all_levels["sd"], out=np.ones(len(errors)), where=all_levels["sd"] > 0)
        worst = errors.loc[int(np.argmax(ratio))]
        at = f"{unquoted(str(worst['level']))}, {unquoted(str(worst['query']))}"
        yield f"          sd beside that of least squares over all levels: {ratio.max():.3f} times at most ({at})"


def _number(value: float) -> str:
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
    """Refuse an ending that is not one of `FORMATS`. Raises `ConfigError`."""
    if path.suffix not in FORMATS:
        raise ConfigError(f"{shown_path(path)}: the table of errors is written as {' or '.join(FORMATS)}; end it so")
    return path


def write_errors(path: Path, errors: pd.DataFrame, confidence: float) -> None:
    """``errors`` and the confidence as a table in CSV, or as records in JSON; what is undetermined or not measured is
    empty, or null."""
    known = errors.assign(confidence=confidence).replace([math.inf, math.nan], None)
    if path.suffix == ".json":
        write_json(path, known.astype(object).where(known.notna(), None).to_dict("records"))
        return
    write_csv(path, frame_batches(known))
