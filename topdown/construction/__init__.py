"""From tables, codes, edges and graphs to trees: the checks behind Geography's constructors."""

from topdown.construction.codes import from_geoids
from topdown.construction.edges import from_edges, from_networkx
from topdown.construction.labels import as_strings, as_text, code_shown, column, plain, rises, with_rows
from topdown.construction.table import from_table

__all__ = [
    "as_strings",
    "as_text",
    "code_shown",
    "column",
    "from_edges",
    "from_geoids",
    "from_networkx",
    "from_table",
    "plain",
    "rises",
    "with_rows",
]
