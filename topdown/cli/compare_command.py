"""`topdown compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Quiet
from topdown.errors import ConfigError
from topdown.machine.streams import OUTLIVES_OUTPUT
from topdown.machine.terminal import Terminal

_MOST_GROUPS = 10
"""For each question, at most so many groups with a clear difference are printed, the largest differences first."""


def compare(
    first: Annotated[Path, typer.Argument(metavar="STUDY", help="The directory of a study, A.")],
    second: Annotated[Path, typer.Argument(metavar="STUDY", help="The directory of a study, B.")],
    method: Annotated[
        list[str] | None,
        typer.Option(help="The method to compare, once for both, or twice for A and B. Default: the released ones."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write to.")] = Path("comparison"),
    quiet: Quiet = False,
) -> object:
    """Compare two studies of different budgets, mechanisms or methods: is B fairer than A?

    Reads the files that `study` wrote, and no counts. Prints whether B is fairer in counts, money and decisions,
    overall and by group, and writes internal/comparison.html, which is as confidential as the studies. Studies of the
    same table with the same seed share their draws, and are compared replicate by replicate. To compare two methods of
    one study, give the study twice.
    """
    from topdown.pipeline.compare import compare_studies

    given = method or []
    if len(given) > 2:
        raise ConfigError(f"--method was given {len(given)} times; give it once for both studies, or twice for A and B")
    methods = (given[0], given[-1]) if given else (None, None)
    page, found = compare_studies(first, second, output, methods=methods)
    out = Terminal(quiet=quiet)
    for study in found["studies"]:
        out.say(f"{study['name']}         {study['words']}")
    out.say(f"draws     {found['pairing']}")
    for card in found["cards"]:
        out.say(f"{card['name'].lower():<9} {card['headline']}")
        for sentence in card["more"]:
            out.say(f"          {sentence}")
        for sentence in card["clear"][:_MOST_GROUPS]:
            out.say(f"          {sentence}")
        if len(card["clear"]) > _MOST_GROUPS:
            out.say(f"          and {len(card['clear']) - _MOST_GROUPS:,} more, see the page")
    for row in found["levels"]:
        out.say(f"errors    {', '.join(row['of'])}: {row['said']}")
    out.say(f"next      open {page}; it is a {found['notice']}")
    return OUTLIVES_OUTPUT
