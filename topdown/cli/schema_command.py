"""`topdown schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.machine.terminal import answer


def schema(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="release, study, project or linked.")] = "release",
    answers: Annotated[
        Path | None,
        typer.Option(
            "--answers",
            metavar="FILE",
            help="Print instead the names of the answers that this study's TOML file follows, as used in "
            "thresholds, funds and rules.",
        ),
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Print all settings as a page of Markdown instead.")] = False,
) -> None:
    """Print the JSON Schema of the TOML file of a release, a study, a projection or two linked tables, for editors.

    Save it, and name it in the first line of the TOML file, as in #:schema release.json. An editor that supports TOML
    then completes settings and marks errors.
    """
    from topdown.config.json_schema import MODELS, json_schema
    from topdown.tables.tidy import json_text

    if answers is not None:
        for label in answers_of(answers):
            answer(label)
        return
    if page:
        from topdown.config.reference import reference

        answer(reference(MODELS))
        return
    answer(json_text(json_schema(kind)))


def answers_of(path: Path) -> tuple[str, ...]:
    """The names of the answers, or cells, that the study at ``path`` follows. Raises `ConfigError` for a release."""
    from topdown.config import load_study
    from topdown.studies.followed import Followed

    config = load_study(path)
    schema = config.schema_of_cells
    plan = config.plan().for_levels(config.geography.level_names).for_schema(schema)
    return Followed.of(schema, config.input.cells, config.studied_queries(schema, plan)).labels
