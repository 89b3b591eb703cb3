"""The configuration as a page of Markdown: every section with its settings, their defaults, and an example."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from topdown.wording import LONGEST_PIECE

EXAMPLES = {
    "input": '[input]\npath = "counts.csv"\ncells = ["employed", "unemployed"]',
    "input.where": '[input.where]\nyear = "2020"',
    "input.leave_out": '[input.leave_out]\ncounty = ["Total"]',
    "input.pad_zeros": "[input.pad_zeros]\ncounty = 5",
    "input.labels": '[input.labels.sex]\n1 = "male"\n2 = "female"',
    "geography": '[geography]\nlevels = ["nation", "state", "county"]\nnames = { county = "county_name" }',
    "geography.widths": "[geography.widths]\nstate = 2\ncounty = 5",
    "geography.names": '[geography.names]\ncounty = "county_name"',
    "geography.spine": (
        '[geography.spine]\nlevels = ["school x county", "pieces x tract"]\n'
        'areas = { school = "school.csv", place = "place.csv" }\ncap = "none"'
    ),
    "privacy": "[privacy]\nepsilon = 1.0\nshares = { nation = 0.2, state = 0.3, county = 0.5 }",
    "privacy.shares": '[privacy.shares]\nstate = "1/4"\ncounty = { total = "1/4", detailed = "1/2" }',
    "privacy.invariants": '[privacy.invariants]\nstate = ["total"]',
    "schema": (
        '[schema]\nsex = ["female", "male"]\nage = ["under 5", "5 to 17", "18 to 64", "65 and over"]\n'
        'home = ["household", "college", "nursing home"]'
    ),
    "recodes": '[recodes.age]\nadult = { minors = ["under 5", "5 to 17"], adults = ["18 to 64", "65 and over"] }',
    "zeros": '[[zeros]]\nhome = "nursing home"\nage = "under 5"',
    "bounds": '[bounds]\npath = "facilities.parquet"\nclosed = ["home"]',
    "ties": '[ties]\nrelease = "../output/pl94/public"',
    "noise": '[noise]\nbounds = "truncated"\nupper = 1000',
    "noise.within": "[noise.within]\ncounty = [[0, 0], [10, inf]]",
    "ledger": '[ledger]\npath = "ledger.db"\ndataset = "labor force 2009"',
    "projection": '[projection]\nmethod = "gls-top-down"',
    "projection.order": '[projection.order]\nnation = ["total"]\nstate = ["total"]',
    "output": '[output]\ndirectory = "output"\ntables = ["age * sex"]',
    "output.margins": (
        '[output]\ntables = ["age * sex"]\nmargins = { levels = ["state", "county"], tables = ["age * sex"] }'
    ),
    "catalogue": '[catalogue]\npublisher = "Office of Statistics"\nlicence = "CC-BY-4.0"\nperiod = "2020-04-01"',
    "exports": '[exports]\ngeometry = "counties.geojson"\nquery = "total"',
    "page": '[page]\ngeometry = "counties.geojson"\nareas = ["districts.csv"]',
    "measurements": '[measurements]\npath = "output/public"',
    "study": '[study]\nreplicates = 1000\ngroups = ["region"]',
    "study.groups": '[[study.groups]]\ncolumns = ["region"]\nname = "Region"',
    "study.thresholds": '[[study.thresholds]]\ncell = "unemployed"\nper = ["employed"]\ncutoff = 0.1',
    "study.rules": (
        '[[study.rules]]\nname = "many children"\n'
        'eligible = "children >= 10 and children > 0.02 * (children + adults)"\nlevel = "county"'
    ),
    "study.tolerance": "[study.tolerance]\nbias = 0.02\nmoney = 0.005",
    "study.impossible": (
        '[study]\nmetrics = "census"\nimpossible = { "all are minors" = "minors == total and total > 0" }'
    ),
    "study.variant": '[[study.variant]]\nname = "truncated"\nbounds = "truncated"',
    "report": "[report]\ndoubtful = 0.15\nunreliable = 0.3",
}
"""TOML of every section, and of every setting that is a table or a list of tables, by its path."""


def right_form(path: Sequence[str], error: Any) -> str | None:
    """What to write for the setting at ``path`` if pydantic's ``error`` is about its type or size; None for any other
    error. ``error["forms"]``: the forms of all errors, for a setting that may have several forms.
    """
    kind, given, limits = error["type"], error["input"], error.get("ctx") or {}
    if kind in _LIMITS:
        percent = isinstance(given, int | float) and limits.get("lt", limits.get("le")) == 1 and 1 < given < 100
        as_part = f", such as {given / 100:g} for {given:g} %" if percent else ""
        return f"give a number {_LIMITS[kind]} {next(iter(limits.values())):g}{as_part}"
    if kind == "too_short":
        example = _example(path, "list_type")
        return "is empty; give at least one" if example is None else f"is empty; give at least one, such as {example}"
    form = form_of(error)
    if form is None:
        return None
    said = f"give {' or '.join(dict.fromkeys(error.get('forms', [form])))}"
    if kind == "list_type" and isinstance(given, str) and len(given) <= LONGEST_PIECE:
        return f"{said}: {path[-1]} = [{json.dumps(given, ensure_ascii=False)}]"
    example = _example(path, kind)
    return said if example is None else f"{said}, such as {example}"


def form_of(error: Any) -> str | None:
    """The form that one of pydantic's errors asks for, in words; None where it is of another sort."""
    return str(error["ctx"]["expected"]) if error["type"] == "literal_error" else _FORMS.get(error["type"])


def _example(path: Sequence[str], kind: str) -> str | None:
    """TOML of the setting at ``path``: a line of the section's example, if it has the setting."""
    if kind not in _TABLES:
        return None
    at = next((name for size in range(len(path), 0, -1) if (name := ".".join(path[:size])) in EXAMPLES), None)
    if at is None:
        return None
    header, *lines = EXAMPLES[at].split("\n")
    own = next((line for line in lines if at != ".".join(path) and line.startswith(f"{path[-1]} = ")), None)
    return own or f"{header} and below it {', '.join(lines)}"


_LIMITS = {
    "less_than": "below",
    "less_than_equal": "of at most",
    "greater_than": "above",
    "greater_than_equal": "of at least",
}
_TABLES = ("dict_type", "model_type", "model_attributes_type", "list_type", "tuple_type")
_FORMS = {
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a table"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("string_type",), "a text in quotes"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
}
"""What to give, by the type of pydantic's error."""


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The descriptions of the settings of ``model`` and of its base classes, from the text below each definition."""
    found: dict[str, str] = {}
    for one in reversed([kind for kind in model.__mro__ if issubclass(kind, BaseModel) and kind is not BaseModel]):
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        assert isinstance(body, ast.ClassDef)  # nosec B101 # narrows a type: the source of a class is one
        for field, said in zip(body.body, body.body[1:], strict=False):
            is_field = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if is_field and isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant):
                found[field.target.id] = " ".join(str(said.value.value).split())  # type: ignore[attr-defined]
    return found


def sections_of(model: type[BaseModel]) -> list[type[BaseModel]]:
    """``model`` and all sections in it, each once."""
    found = [model]
    for one in found:
        inner = [_model_in(field.annotation) for field in one.model_fields.values()]
        found += [section for section in inner if section is not None and section not in found]
    return found


def reference(models: dict[str, type[BaseModel]]) -> str:
    """Markdown: the sections of ``models``, each once, with the settings of each, and examples."""
    lines = [
        "# The TOML file",
        "",
        "A release, a study and a projection of measurements are each described by a TOML file. This page is made from "
        "the program's own definitions. `topdown schema` prints them as JSON Schema, with which editors complete and "
        "check a file.",
        "",
    ]
    sections: dict[str, tuple[str, type[BaseModel], str, FieldInfo]] = {}
    for kind, model in models.items():
        for name, field in model.model_fields.items():
            if name not in _NO_SECTIONS:
                sections.setdefault(field.alias or name, (kind, model, name, field))
    for path in [path for path in EXAMPLES if path in sections]:
        kind, model, name, field = sections[path]
        needed = "required" if field.is_required() else "optional"
        lines += [*_section(path, field, descriptions(model).get(name, "")), f"In the file of a {kind}: {needed}.", ""]
        lines += _tables(path, field)
    return "\n".join(lines).rstrip() + "\n"


_NO_SECTIONS = ("folder", "title")


def _section(path: str, field: FieldInfo, said: str) -> list[str]:
    """The title of a section, and what it is."""
    brackets = ("[[", "]]") if get_origin(field.annotation) is list else ("[", "]")
    section = _model_in(field.annotation)
    about = said if section is None else inspect.getdoc(section)
    return [f"## {path.join(brackets)}", "", str(about).replace("``", "`"), ""]


def _tables(path: str, field: FieldInfo) -> list[str]:
    """The settings of a section and of the tables in it, with examples."""
    section, lines = _model_in(field.annotation), []
    inner = {} if section is None else section.model_fields
    if section is not None:
        told = descriptions(section)
        lines += ["| setting | default | what it is |", "|---|---|---|"]
        lines += [f"| `{name}` | {_default(one)} | {_escaped(told[name])} |" for name, one in inner.items()] + [""]
    lines += ["```toml", EXAMPLES[path], "```", ""]
    for at in [at for at in EXAMPLES if at.startswith(f"{path}.")]:
        setting = inner.get(at.rpartition(".")[2])
        if setting is not None and _model_in(setting.annotation) is not None:
            lines += [*_section(at, setting, "")[:3], "", *_tables(at, setting)]
        else:
            lines += ["```toml", EXAMPLES[at], "```", ""]
    return lines


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The section that an annotation names, alone, in a list or in a union with None."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    return next((found for found in map(_model_in, get_args(annotation)) if found is not None), None)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, BaseModel):
        return "below"
    return f"`{json.dumps(value)}`"
