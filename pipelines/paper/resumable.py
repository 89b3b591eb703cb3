"""Long studies that can be stopped: repeats one by one, with a progress bar, kept as a small Parquet file.

Every repeat has a seed of its own, so that how often a run was stopped changes nothing. What is kept says with which
settings it was made; other settings are another file.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from topdown.machine.files import whole_file

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"

_KEPT_EVERY = 60.0
"""Seconds of work that a kill may cost, or one repeat where that is longer."""


def repeats_of(
    name: str,
    count: int,
    settings: Mapping[str, Any],
    repeat: Callable[[int], list[dict[str, Any]]],
    folder: Path = RESULTS,
) -> pd.DataFrame:
    """The rows of ``count`` repeats, those that were made before among them; ``repeat(k)``: the rows of the k-th.

    Kept in NAME-SETTINGS.parquet of ``folder`` every minute, at the end, and when stopped by Ctrl-C.
    """
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(json.dumps(dict(settings), sort_keys=True, default=str).encode()).hexdigest()[:8]
    path = folder / f"{name}-{digest}.parquet"
    rows = pd.read_parquet(path).to_dict("records") if path.exists() else []
    made = 1 + max((int(row["repeat"]) for row in rows), default=-1)

    def keep() -> None:
        frame = pd.DataFrame(rows)
        frame.attrs["settings"] = json.dumps(dict(settings), default=str)
        with whole_file(path) as partial:
            frame.to_parquet(partial, index=False)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(name, total=count, completed=min(made, count))
        kept_at, unkept = time.monotonic(), False
        try:
            for number in range(made, count):
                rows += [{"repeat": number, **row} for row in repeat(number)]
                progress.advance(task)
                unkept = True
                if time.monotonic() - kept_at > _KEPT_EVERY:
                    keep()
                    kept_at, unkept = time.monotonic(), False
        finally:
            if unkept:
                keep()
    return pd.DataFrame([row for row in rows if row["repeat"] < count])
