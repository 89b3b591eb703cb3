"""A first configuration for a table, of what it seems to be: to be read, corrected, and checked."""

from __future__ import annotations

import re

from topdown.pipeline.input.guess import Guess
from topdown.wording import unquoted


def configuration(found: Guess, path: str, title: str) -> str:
    """``found`` as a commented TOML file, for a table at ``path`` as the file's folder sees it."""
    levels = found.level_names
    share = f'"1/{len(levels)}"'
    lines = [
        "#:schema release.json",
        f"# Guessed from the columns of {_comment(path)}. Read every line: a table does not say what it means.",
        "# `topdown check` says, before anything is drawn, what is protected and how large the errors will be;",
        "# `topdown schema > release.json` lets an editor complete this file.",
        "",
        f"title = {_quoted(title)}",
        "",
        "[input]",
        f"path = {_quoted(path)}",
    ]
    lines += [f"{name} = {_quoted(value)}" for name, value in (
        ("delimiter", found.form.delimiter), ("sheet", found.form.sheet),
        ("encoding", None if found.form.encoding == "utf-8" else found.form.encoding),
    ) if value is not None]  # fmt: skip
    if found.where:
        where = ", ".join(f"{_key(name)} = {_quoted(value)}" for name, value in found.where.items())
        lines.append(
            f"where = {{ {where} }}            # of rows of several levels only the lowest: the others are sums"
        )
    if found.rows != "leaves":
        what = "every row is a record" if found.count is None else "every row is a unit and its categories"
        lines.append(f'rows = "{found.rows}"                      # {what}')
        lines += [] if found.count is None else [f"count = {_quoted(found.count)}"]
    if found.cells:
        lines.append("# Disjoint columns of counts: every record is in one of them." if len(found.cells) > 1 else "")
        lines.append(f"cells = [{', '.join(map(_quoted, found.cells))}]")
    lines += [f"# Left out, since it is the sum of others: {_comment(name)}" for name in found.sums]
    if found.widths:
        lines.append(f"geoid = {_quoted(found.geoid or '')}")
    if found.attributes:
        lines += [
            "",
            "# All categories that there may be, also those that no row has: they are published.",
            "[schema]",
            *(f"{_key(name)} = [{', '.join(map(_quoted, some))}]" for name, some in found.attributes.items()),
        ]
    lines += ["", "[geography]"]
    if found.widths:
        widths = ", ".join(f"{_key(level)} = {width}" for level, width in found.widths.items())
        lines.append(f"widths = {{ {widths} }}            # characters of the code that name the unit at each level")
    else:
        lines.append(f"levels = [{', '.join(map(_quoted, found.levels))}]       # one column per level, root first")
    if found.root is not None:
        lines.append(f"root = {_quoted(found.root)}                          # what everything together is called")
    if found.separator is not None:
        lines.append(f"separator = {_quoted(found.separator)}   # levels share names: paths tell units apart")
    named = {level: called for level, called in found.names.items() if level in levels}
    if named and found.levels:
        lines.append(f"names = {{ {', '.join(f'{_key(k)} = {_quoted(v)}' for k, v in named.items())} }}")
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


def _quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    written = (escapes.get(sign, sign if sign.isprintable() else f"\\U{ord(sign):08x}") for sign in text)
    return '"' + "".join(written) + '"'


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _comment(text: str) -> str:
    return unquoted(text, 200)
