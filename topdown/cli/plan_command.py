"""`topdown plan` and `topdown spine`: choose budgets and trees by their expected errors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Areas, File, Quiet, Verbose, set_logging
from topdown.machine.terminal import Terminal, answer


def plan(
    file: File,
    target: Annotated[
        list[str],
        typer.Option(help="Such as 'county: 25 at 90 %', or 'county, total: 25 at 90 %' for a query. May be repeated."),
    ],
    areas: Areas = None,
    verbose: Verbose = False,
) -> None:
    """Find the smallest budget, and its shares, that meets every --target. Prints TOML to paste into FILE.

    "county: 25 at 90 %" means: in every county, each cell is within 25 of the true count with a probability of 90 %.
    The budget is divided among the levels and queries that \\[privacy.shares] of FILE names. The result depends on the
    units only: no count is used and no budget is spent. With --areas school.csv a target may be "school: 10 at 90 %".
    `topdown check --errors` then prints the errors of the new file.
    """
    from topdown.config import load_any
    from topdown.pipeline.smallest_budget import smallest
    from topdown.planning.plan_toml import as_toml

    set_logging(verbose)
    answer(as_toml(smallest(load_any(file), target, areas or ())))


def spine(
    file: File,
    areas: Areas = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(help="Such as school=4, of a level or a kind of areas; 1 by default. May be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="TOML", help="The new configuration, by default FILE with _spine."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Choose the tree on which the measurements are made, so that areas which are not units get small errors.

    Compares spines, trees of public facts with the units of FILE as leaves, each with its best shares of FILE's total
    budget, by the exact errors of the total at units and areas. Prints them as a table, and writes the best as a
    configuration that measures on it and publishes the units of FILE and the areas, and a picture of the trade-off. No
    count is read and no budget is spent. An area that a spine's groups follow is measured almost as well as a unit.

    Of a FILE with a preset of the 2020 census, without --areas: production's own spine, from the columns AIANNHCE,
    COUSUBFP and PLACEFP of the list of units.
    """
    from topdown.config import load_config
    from topdown.errors import ConfigError
    from topdown.machine.progress import Shown
    from topdown.pipeline.chosen_spine import choose, files_of, lines, require_place, write
    from topdown.pipeline.production_spine import production_spine, spine_lines, write_production
    from topdown.wording import shown

    set_logging(verbose)
    weights: dict[str, float] = {}
    for one in weight or ():
        name, _, number = (part.strip() for part in one.rpartition("="))
        if name in weights:
            raise ConfigError(f"--weight {one}: {shown(name)} already has a weight; give each level one")
        try:
            weights[name] = float(number)
        except ValueError:
            raise ConfigError(f"--weight {one}: write LEVEL=NUMBER, such as school=4") from None
    with Shown(Terminal(quiet=quiet), 2) as stages:
        config = load_config(file)
        path = file.with_name(f"{file.stem}_spine.toml") if output is None else output
        require_place(file, path)  # before the search
        if config.privacy.preset is not None and not areas and not weights:
            production = production_spine(config, stages)
            for line in spine_lines(production):
                stages.say(line)
            write_production(production, config, file, path)
        else:
            chosen = choose(config, areas or (), weights, stages)
            for line in lines(chosen):
                stages.say(line)
            write(chosen, config, file, path)
        for written in files_of(path):
            if written.exists():
                stages.say(f"wrote     {written}")
        then = f", then topdown run {path}" if config.is_released else ", of the total"
        stages.say(f"next      topdown check {path} --errors{then}")
