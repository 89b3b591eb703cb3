"""`topdown part`: the steps of a release in parts one by one, for array jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from topdown.cli.options import File, Output, PartSize, Quiet, shown_stages
from topdown.machine.terminal import Terminal

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Run the steps of a release in parts one by one, for array jobs: cut, up for every part, top, down for every "
        "part, gather. A step may be run again: finished work is not repeated."
    ),
)

Part = Annotated[
    str, typer.Option("--part", metavar="NNNN", help="The part's number, as `topdown part list` prints it.")
]


@app.command()
def cut(file: File, part_size: PartSize = None, output: Output = None, quiet: Quiet = False) -> None:
    """Read and validate FILE and its data, rehearse the run, reserve the budget, and cut the tree into parts."""
    from topdown.config import load_config
    from topdown.pipeline.parts import part_commands

    with shown_stages(quiet, 4) as stages:
        part_commands.cut(load_config(file), output, part_size, stages)


@app.command(name="list")
def list_parts(file: File, output: Output = None) -> None:
    """Print the number of every part, and which of its steps are done."""
    from topdown.config import load_config
    from topdown.pipeline.parts import part_commands

    for line in part_commands.listed_parts(load_config(file), output):
        Terminal().say(line)


@app.command()
def up(file: File, part: Part, output: Output = None) -> None:
    """Measure a part, and combine its measurements from the leaves up to its uppermost units. Parts may run at the same
    time.
    """
    from topdown.config import load_config
    from topdown.pipeline.parts import part_commands, part_steps

    part_commands.step(part_steps.up, load_config(file), output, part)


@app.command()
def top(file: File, output: Output = None) -> None:
    """Project the levels above the parts, after `up` of every part."""
    from topdown.config import load_config
    from topdown.pipeline.parts import part_commands

    part_commands.top(load_config(file), output)


@app.command()
def down(file: File, part: Part, output: Output = None) -> None:
    """Project and round a part below its uppermost units. Parts may run at the same time."""
    from topdown.config import load_config
    from topdown.pipeline.parts import part_commands, part_steps

    part_commands.step(part_steps.down, load_config(file), output, part)


@app.command()
def gather(file: File, output: Output = None, quiet: Quiet = False) -> None:
    """Write and publish the release after `down` of every part, and delete the files of the parts."""
    from topdown.config import load_config
    from topdown.pipeline.parts import part_commands

    with shown_stages(quiet, 1) as stages:
        part_commands.gather(load_config(file), output, stages)
