"""From tables, codes, edges and graphs to trees: the checks behind Geography's constructors."""

from topdown.geography.codes import checked_lengths, from_geoids
from topdown.geography.edges import from_edges, from_networkx
from topdown.geography.filling import repeat_down
from topdown.geography.labels import (
    as_frame,
    as_strings,
    as_text,
    code_shown,
    column,
    in_one_piece,
    plain,
    rises,
    with_rows,
)
from topdown.geography.table import from_table

__all__ = [
    "as_frame",
    "as_strings",
    "as_text",
    "checked_lengths",
    "code_shown",
    "column",
    "from_edges",
    "from_geoids",
    "from_networkx",
    "from_table",
    "in_one_piece",
    "plain",
    "repeat_down",
    "rises",
    "with_rows",
]
