"""`topdown init`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topdown.cli.options import Quiet
from topdown.machine.terminal import Terminal
from topdown.wording import escaped

if TYPE_CHECKING:
    from topdown.guess.found import Guess


def init(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="The confidential table: Parquet, text or a workbook.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The TOML file to write.")] = Path("release.toml"),
    delimiter: Annotated[
        str | None, typer.Option(help="The character between columns. Default: the one that divides the first lines.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="The encoding of a text file. Default: UTF-8, or windows-1252 where it is not.")
    ] = None,
    sheet: Annotated[str | None, typer.Option(help="The sheet of a workbook that has several.")] = None,
    header: Annotated[
        int,
        typer.Option(min=1, help="The row with the columns' names. Default: the first row as wide as the table."),
    ] = 1,
    ask: Annotated[
        bool | None, typer.Option("--ask/--no-ask", help="Ask where the guess is uncertain. Default: in a terminal.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Read TABLE and write a commented TOML file for its release, for you to read, correct and check.

    All columns are examined together: codes, names, levels, counts, categories, and columns that are sums of others,
    which are left out. What they do not determine is asked: in a terminal, or else as a line of the file that begins
    with #?. The privacy budget cannot be inferred: the file says epsilon = 1, in equal shares. Ends with the result of
    `topdown check`.
    """
    from topdown.config import load_config
    from topdown.errors import ConfigError, TopdownError
    from topdown.guess.first_configuration import configuration
    from topdown.guess.inference import guess
    from topdown.pipeline import draw
    from topdown.tables.format import Format
    from topdown.tables.readers import require_encodable, require_file

    if output.exists():
        raise ConfigError(f"{output}: exists already; give another --output")
    try:
        seen = Path(os.path.relpath(table, output.parent)).as_posix()
    except ValueError:  # on another drive
        seen = table.absolute().as_posix()
    require_encodable(Path(seen))
    found = guess(require_file(table), Format(delimiter, encoding or "utf-8", sheet, header))
    out = Terminal(quiet=quiet)
    if ask or (ask is None and not quiet and sys.stdin.isatty() and sys.stdout.isatty()):
        found = _answered(found, out)
    text = configuration(found, seen, table.name.split(".")[0])
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}; give another --output") from None
    out.say(f"wrote     {output}")
    for line in taken(found):
        out.say(escaped(line))  # names of columns may have line ends
    for question in found.questions:
        out.say(escaped(f"?         {question.text} Assumed: {question.taken}"))
    try:
        draw.check(load_config(output))
    except TopdownError as error:
        out.say(f"next      correct it, topdown check {output} says: {error}")
        return
    if found.questions:
        many = "the question" if len(found.questions) == 1 else f"the {len(found.questions)} questions"
        out.say(f"next      answer {many} above: in {output} on lines that begin with #?, with what to write instead;")
        out.say(f"          topdown check {output} passes with the assumptions, which nobody has confirmed")
    else:
        out.say(f"next      read it, and choose the budget: topdown check {output} passes")


def taken(found: Guess) -> list[str]:
    """How ``found`` interprets the columns, in a few lines without any of their values."""
    from topdown.guess.found import some

    units = some(found.level_names, 8)
    lines = [
        f"rows      each is {found.rows.what}",
        f"levels    {units}" + (f", parts of the codes in {found.geoid}" if found.widths else ""),
    ]
    if found.attributes:
        lines.append(f"counts    {found.count or 'records'} by {some(list(found.attributes), 8)}")
    else:
        lines.append(f"cells     {some(found.cells, 8)}")
    if found.sums:
        lines.append(f"sums      {some(list(found.sums), 8)}: left out, as sums of others")
    if found.ignored:
        lines.append(f"not used  {some([name or '(no name)' for name in found.ignored], 8)}")
    for name, value in found.where.items():
        lines.append(f"only      rows with {name} = {value}")
    if found.form.footer:
        lines.append(f"not read  the last lines below the table, which appear to be notes: {found.form.footer}")
    if found.leave_out:
        lines.append(f"not read  rows that are totals, by {some(list(found.leave_out))}")
    return lines


def _answered(found: Guess, out: Terminal) -> Guess:
    """``found`` with answers to its questions, asked one after the other."""
    for question in found.questions:
        out.say(escaped(f"?         {question.text}"))
        choices = [question.taken, *(choice.label for choice in question.others)]
        for number, label in enumerate(choices, start=1):
            out.say(escaped(f"          {number}  {label}"))
        number = 0
        while not 1 <= number <= len(choices):
            number = typer.prompt("          which", default=1, type=int)
        found = found.answered(question, question.others[number - 2] if number > 1 else None)
    return found
