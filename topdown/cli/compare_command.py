"""`topdown compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Quiet
from topdown.errors import ConfigError
from topdown.machine.streams import OUTLIVES_OUTPUT
from topdown.machine.terminal import Terminal


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
    """Compare two studies: two budgets, two mechanisms or two methods.

    Reads the files that `study` wrote, and no counts. Prints the clear differences by level, and writes
    internal/comparison.html, which is as confidential as the studies. To compare two methods of one study, give the
    study twice.
    """
    from topdown.pipeline.compare import compare_studies

    given = method or []
    if len(given) > 2:
        raise ConfigError(f"--method was given {len(given)} times; give it once for both studies, or twice for A and B")
    methods = (given[0], given[-1]) if given else (None, None)
    page, found = compare_studies(first, second, output, methods=methods)
    out = Terminal(quiet=quiet)
    for study in found["studies"]:
        words = (
            f"{study['name']}         {study['title']}: {study['method']}, {study['run']['replicates']:,} replicates"
        )
        out.say(words)
    for row in found["levels"]:
        out.say(f"compared  {', '.join(row['of'])}: {row['verdict']}")
    out.say(f"next      open {page}; it is a {found['notice']}")
    return OUTLIVES_OUTPUT
