"""`topdown schema`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer


def schema(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="release, study or project.")] = "release",
) -> None:
    """Print the JSON Schema of the TOML file of a release, a study or a projection, for editors.

    Save it, and name it in the file's first line, as #:schema release.json: an editor that knows TOML then completes
    settings and marks what is wrong.
    """
    from topdown.config.json_schema import json_schema

    sys.stdout.write(json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n")
