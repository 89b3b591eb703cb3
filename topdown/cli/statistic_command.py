"""`topdown statistic`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Quiet
from topdown.machine.streams import OUTLIVES_OUTPUT
from topdown.machine.terminal import Terminal


def statistic(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The confidential table, a row for every record.")],
    column: Annotated[list[str], typer.Option("--column", help="The column; give two for a covariance.")],
    bounds: Annotated[list[str], typer.Option("--bounds", help="Public bounds, LOWER:UPPER, one for every column.")],
    epsilon: Annotated[str, typer.Option("--epsilon", help="The budget: 1, 0.5 or 1/3.")],
    output: Annotated[Path, typer.Option("--output", help="The directory of statistic.json and of its secret.")],
    of: Annotated[
        str, typer.Option("--of", help="mean (of zeros and ones: a proportion), variance or covariance.")
    ] = "mean",
    bounding: Annotated[
        str,
        typer.Option("--bounding", help="boundary-inflated (clipped), or truncated at the scale that keeps epsilon."),
    ] = "boundary-inflated",
    unit: Annotated[str, typer.Option("--unit", help="Whom or what a record describes.")] = "person",
    ledger: Annotated[Path | None, typer.Option("--ledger", help="The ledger in which the budget is reserved.")] = None,
    dataset: Annotated[str, typer.Option("--dataset", help="The data set's name in the ledger.")] = "",
    quiet: Quiet = False,
) -> object:
    """Release one bounded statistic of a table: exact on a grid, within its bounds, drawn once.

    The number of records, lines that are not empty, is published. Protected are the values of one record
    ("substitute"). OUTPUT/internal is as confidential as the table: it holds the secret from which the noise is
    derived, so that the same command gives the same answer again and spends nothing more. Another column, table or
    budget needs an --output directory of its own.
    """
    from topdown.errors import ConfigError
    from topdown.noise import exact_fraction
    from topdown.research.statistic.released_statistic import release_statistic
    from topdown.research.statistic.statistic_plan import StatisticPlan
    from topdown.wording import shown

    pairs = []
    for text in bounds:
        low, colon, high = text.partition(":")
        if not colon:
            raise ConfigError(f"--bounds {shown(text)}: give LOWER:UPPER, such as 0:100")
        pairs.append((exact_fraction(low), exact_fraction(high)))

    def plan(records: int) -> StatisticPlan:
        return StatisticPlan(of, tuple(pairs), records, exact_fraction(epsilon), bounding, unit=unit)

    plan(2)  # wrong arguments are reported before the table is read
    written = release_statistic(table, column, plan, output, ledger=ledger, dataset=dataset)
    Terminal(quiet=quiet).say(
        f"{written['statistic']} {written['decimal']:.10g} of {written['records']:,} records, epsilon "
        f"{written['epsilon']}; written to {output / 'statistic.json'}"
    )
    return OUTLIVES_OUTPUT
