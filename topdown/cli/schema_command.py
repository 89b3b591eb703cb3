"""`topdown schema`."""

from __future__ import annotations

from typing import Annotated

import typer

from topdown.machine.terminal import answer


def schema(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="release, study or project.")] = "release",
    page: Annotated[bool, typer.Option("--page", help="Print all settings as a page of Markdown instead.")] = False,
) -> None:
    """Print the JSON Schema of the TOML file of a release, a study or a projection, for editors.

    Save it, and name it in the first line of the TOML file, as #:schema release.json. An editor that knows TOML then
    completes settings and marks errors.
    """
    from topdown.config.json_schema import MODELS, json_schema
    from topdown.tables.tidy import json_text

    if page:
        from topdown.config.reference import reference

        answer(reference(MODELS))
        return
    answer(json_text(json_schema(kind)))
