"""The numbers of a study's report as one JSON-able value, section by section."""

from __future__ import annotations

from typing import Any

from topdown.studies.report.cards import cards, comparisons
from topdown.studies.report.plain_numbers import rounded
from topdown.studies.report.results import StudyResults
from topdown.studies.report.sections import registry


def summarise(results: StudyResults) -> dict[str, Any]:
    """The content of the report as plain numbers, strings and lists, with numbers as `rounded` makes them."""
    table = results.table
    summary: dict[str, Any] = {
        "title": results.title,
        "notice": table.notice,
        "public_input": table.public_input,
        "primary": results.primary,
        "released": results.released,
        "methods": list(table.methods),
        "cells": list(table.cells),
        "levels": list(table.geography.levels),
        "unit": results.plan.unit,
        "tolerance": results.tolerance.model_dump(),
    }
    for section in registry.sections():
        summary |= section.numbers(results)
    result: dict[str, Any] = rounded(summary)
    return result | {
        "cards": cards(table, results.primary, results.released, result),
        "comparisons": comparisons(results.primary, result),
    }
