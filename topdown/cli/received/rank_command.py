"""`topdown rank`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.answers import print_table
from topdown.cli.options import AnswerFormat
from topdown.machine.terminal import note


def rank(
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release.")],
    level: Annotated[str, typer.Option(help="The level whose units are ranked.")],
    cell: Annotated[str | None, typer.Option(help="A cell, or field (P0010003). Default: the total.")] = None,
    asked: Annotated[str, typer.Option("--query", help="The query, or table (P1), that --cell belongs to.")] = "total",
    within: Annotated[str | None, typer.Option(help="The GEOID of a unit: rank only the units below it.")] = None,
    smallest: Annotated[bool, typer.Option("--smallest", help="The smallest first.")] = False,
    first: Annotated[int | None, typer.Option(min=1, help="Print only the first rows, so many.")] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of all ranks together (0.5 to 1).")] = 0.9,
    output: Annotated[AnswerFormat, typer.Option("--format", help="table, csv or json.")] = AnswerFormat.table,
) -> None:
    """Rank the units of a level of a release, with a confidence interval for the rank of each.

    Reads public files only. With the given confidence, the true ranks of all units are simultaneously between
    rank_lower and rank_upper.
    """
    from topdown.analysis.ranks import rank as ranked
    from topdown.errors import ConfigError
    from topdown.release.published import read_release

    found = read_release(public)
    reason = found.measurements.reason_against([level])
    if reason is not None:
        raise ConfigError(f"ranks come from margins of error, and this level has none: {reason}")
    table = ranked(
        found.measurements.kept,
        found.release,
        level,
        query=asked,
        cell=cell,
        within=within,
        smallest=smallest,
        confidence=confidence,
    )
    print_table(table if first is None else table.head(first), output)
    note(
        f"{len(table):,} units are ranked; the true ranks of all of them are between rank_lower and rank_upper at once "
        f"with a probability of at least {confidence:.12g}"
    )
