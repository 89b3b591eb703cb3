"""`topdown init`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Quiet
from topdown.machine.terminal import Terminal


def init(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The confidential table: Parquet, CSV or .xlsx.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The TOML file to write.")] = Path("release.toml"),
    delimiter: Annotated[str | None, typer.Option(help="The character between columns, if it is not a comma.")] = None,
    encoding: Annotated[str, typer.Option(help="The encoding of a text file.")] = "utf-8",
    sheet: Annotated[str | None, typer.Option(help="The sheet of a workbook that has several.")] = None,
    quiet: Quiet = False,
) -> None:
    """Read TABLE and write a commented TOML file for its release, for you to read, correct and check.

    It guesses which columns are codes, names, levels and counts, and leaves out columns that are sums of others. The
    privacy budget cannot be guessed: the file says epsilon = 1, in equal shares. Ends with the result of
    `topdown check`.
    """
    from topdown.config import load_config
    from topdown.errors import ConfigError, TopdownError
    from topdown.pipeline import draw
    from topdown.pipeline.input.first_configuration import configuration
    from topdown.pipeline.input.guess import guess, likely_form
    from topdown.tables.format import Format
    from topdown.tables.readers import require_encodable, require_file

    if output.exists():
        raise ConfigError(f"{output}: is there already; give another --output")
    form = likely_form(require_file(table), Format(delimiter, encoding, sheet))
    try:
        seen = Path(os.path.relpath(table, output.parent)).as_posix()
    except ValueError:  # on another drive
        seen = table.absolute().as_posix()
    require_encodable(Path(seen))
    text = configuration(guess(table, form), seen, table.name.split(".")[0])
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}; give another --output") from None
    out = Terminal(quiet=quiet)
    out.say(f"wrote     {output}")
    try:
        draw.check(load_config(output))
    except TopdownError as error:
        out.say(f"next      correct it, topdown check {output} says: {error}")
    else:
        out.say(f"next      read it, and choose the budget: topdown check {output} passes")
