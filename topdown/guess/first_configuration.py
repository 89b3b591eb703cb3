"""Writes the first configuration for a table from a guess, to be read, corrected, and checked."""

from __future__ import annotations

import re
from dataclasses import replace

from topdown.guess.found import Choice, Guess, some
from topdown.tables.format import PLAIN
from topdown.wording import unquoted


def configuration(found: Guess, path: str, title: str) -> str:
    """``found`` as a commented TOML file, for a table at ``path`` relative to the file's folder. Uncertain settings
    have a question above them, which begins with `QUESTION` and gives the alternatives.
    """
    levels = found.level_names
    share = f'"1/{len(levels)}"'
    lines = [
        "#:schema release.json",
        f"# Guessed from the columns of {_comment(path)}. Read every line: a table does not say what it means.",
        *(
            ["# Lines that begin with `#?` ask what the columns do not show; take them out when they are answered."]
            if found.questions
            else []
        ),
        "# `topdown check` says, before anything is drawn, what is protected and how large the errors will be;",
        "# `topdown schema > release.json` lets an editor complete this file.",
        "",
        f"title = {_quoted(title)}",
        "",
        "[input]",
        f"path = {_quoted(path)}",
    ]
    for topic in ("encoding", "thousands"):
        lines += _asked(found, topic)
    lines += _form(found)
    for topic in ("rows", "where", "leave_out"):
        lines += _asked(found, topic)
    lines += _rows(found)
    lines += _asked(found, "pad_zeros") + _pads(found) + _asked(found, "cells")
    if found.cells:
        lines += ["# Disjoint columns of counts: every record is in one of them."] if len(found.cells) > 1 else []
        lines += _setting("cells", found.cells)
    lines += [
        f"# Left out, since it is the sum of {_comment(some(parts))}: {_comment(name)}"
        for name, parts in found.sums.items()
    ]
    for why in dict.fromkeys(found.ignored.values()):
        names = [name or "(no name)" for name, reason in found.ignored.items() if reason == why]
        lines.append(f"# Left out ({_comment(why)}): {_comment(', '.join(names))}")
    if found.widths:
        lines.append(f"geoid = {_quoted(found.geoid or '')}")
    if found.attributes:
        lines += [
            "",
            "# All categories that there may be, also those that no row has: they are published.",
            "[schema]",
            *(f"{_key(name)} = [{', '.join(map(_quoted, values))}]" for name, values in found.attributes.items()),
        ]
    lines += ["", "[geography]"]
    for topic in ("units", "nesting", "levels", "widths"):
        lines += _asked(found, topic)
    lines += _geography(found)
    lines += [
        '# units = "units.csv"                    # a public list of the units, where the table is not to be the list',
        "",
        "[privacy]",
        'mechanism = "geometric"                  # or "discrete-gaussian", with rho in place of epsilon',
        "epsilon = 1.0                            # the whole budget: choose it",
        f"shares = {{ {', '.join(f'{_key(level)} = {share}' for level in levels)} }}   # of the budget, level by level",
        'neighbours = "add-remove"                # or "substitute", where the number of records is public',
        'unit = "person"                          # what a record is',
        "",
        "[output]",
        'directory = "output"',
    ]
    return "\n".join(lines) + "\n"


QUESTION = "#? "
"""The beginning of a line with a question."""


def _asked(found: Guess, topic: str) -> list[str]:
    """The questions about ``topic`` as comments, each with the assumption and the alternatives."""
    lines = []
    for question in found.questions:
        if question.topic != topic:
            continue
        lines += [f"{QUESTION}{_comment(question.text)}", f"#  Taken: {_comment(question.taken)}."]
        for choice in question.others:
            lines.append(f"#  Or: {_comment(choice.label)}:")
            lines += [f"#     {line}" for line in written(found, choice)]
    return lines


def written(found: Guess, choice: Choice) -> list[str]:
    """The lines that differ in the file where ``choice`` is taken."""
    other = replace(found, **choice.changes)
    makers = (_form, _rows, _pads, lambda one: _setting("cells", one.cells), _geography)
    here, there = ([line for make in makers for line in make(one)] for one in (found, other))
    changed = [line.split("   #")[0].rstrip() for line in there if line not in here]
    return changed or ["(leave the setting below out)"]


def _setting(name: str, values: tuple[str, ...]) -> list[str]:
    return [f"{name} = [{', '.join(map(_quoted, values))}]"] if values else []


def _form(found: Guess) -> list[str]:
    """The settings on the file's form."""
    form = found.form
    settings = {
        "delimiter": form.delimiter,
        "sheet": form.sheet,
        "encoding": form.encoding if form.codec != PLAIN.codec else None,
        "decimal": form.decimal,
        "thousands": form.thousands,
    }
    lines = [f"{name} = {_quoted(value)}" for name, value in settings.items() if value is not None]
    rows = {"header": form.header * (form.header != 1), "footer": form.footer}
    return [*lines, *(f"{name} = {value}" for name, value in rows.items() if value)]


def _rows(found: Guess) -> list[str]:
    """Which rows are read, and what they are."""
    lines = []
    if found.where:
        lines.append(f"where = {_table(found.where)}            # of rows of several kinds only these")
    if found.leave_out:
        values = ", ".join(f"{_key(k)} = [{', '.join(map(_quoted, v))}]" for k, v in found.leave_out.items())
        lines.append(f"leave_out = {{ {values} }}            # rows that are sums of others")
    if found.rows.setting:
        lines.append(found.rows.setting)
    lines += [] if found.count is None else [f"count = {_quoted(found.count)}"]
    return lines


def _pads(found: Guess) -> list[str]:
    pads = ", ".join(f"{_key(name)} = {width}" for name, width in found.pad_zeros.items())
    return (
        [f"pad_zeros = {{ {pads} }}            # so many digits have the codes; zeros that were lost are put back"]
        if pads
        else []
    )


def _geography(found: Guess) -> list[str]:
    levels = found.level_names
    lines = []
    if found.widths:
        widths = ", ".join(f"{_key(level)} = {width}" for level, width in found.widths.items())
        lines.append(f"widths = {{ {widths} }}            # characters of the code that name the unit at each level")
        if found.root_level != "nation":
            lines.append(f"root_level = {_quoted(found.root_level)}")
    else:
        lines.append(f"levels = [{', '.join(map(_quoted, found.levels))}]       # one column per level, root first")
    if found.root is not None:
        lines.append(f"root = {_quoted(found.root)}                          # what everything together is called")
    if found.separator is not None:
        lines.append(f"separator = {_quoted(found.separator)}   # levels share names: paths tell units apart")
    named = {level: called for level, called in found.names.items() if level in levels}
    if found.widths and list(named) == levels[-1:]:
        lines.append(f"names = {_quoted(named[levels[-1]])}")
    elif named:
        lines.append(f"names = {_table(named)}")
    return lines


def _table(pairs: dict[str, str]) -> str:
    return f"{{ {', '.join(f'{_key(k)} = {_quoted(v)}' for k, v in pairs.items())} }}"


def _quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    written = (escapes.get(sign, sign if sign.isprintable() else f"\\U{ord(sign):08x}") for sign in text)
    return '"' + "".join(written) + '"'


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _comment(text: str) -> str:
    return unquoted(text, 200)
