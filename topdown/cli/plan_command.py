"""`topdown plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from topdown.cli.options import File, Verbose, set_logging
from topdown.machine.terminal import answer


def plan(
    file: File,
    target: Annotated[
        list[str],
        typer.Option(help="Such as 'county: 25 at 90 %', or 'county, total: 25 at 90 %' for a query. May be repeated."),
    ],
    verbose: Verbose = False,
) -> None:
    """Find the smallest budget, and its shares, that meets every --target. Prints TOML to paste into FILE.

    "county: 25 at 90 %" means: in every county every cell is within 25 of the truth with a probability of 90 %. The
    budget is divided among the levels and queries that \\[privacy.shares] of FILE names. It depends on the units only:
    no count is used and no budget is spent. `topdown check --errors` then prints the errors of the new file.
    """
    from topdown.config import load_any
    from topdown.pipeline.smallest_budget import smallest
    from topdown.planning.plan_toml import as_toml

    set_logging(verbose)
    answer(as_toml(smallest(load_any(file), target)))
