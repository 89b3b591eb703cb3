"""The run's configuration: a TOML file, validated; unknown keys are refused with the nearest known one."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, ValidationError, model_validator

from topdown.errors import ConfigError, nearest
from topdown.evaluation.fairness import size_classes
from topdown.evaluation.methods import parse_methods
from topdown.evaluation.noise_comparison import UNBOUNDED
from topdown.privacy.bounds import CALIBRATED, NONE
from topdown.privacy.plan import Plan
from topdown.wording import LONGEST_LIST, listed, reason, shown, shown_path, unquoted
from topdown.workload import DETAILED, Schema


def _as_written(value: Any) -> Any:
    """TOML numbers by their shortest decimal, so that 0.1 is 1/10 all the way."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_MOST_ERRORS = 3
_LONGEST_SETTING = 25
"""A message quotes at most so many settings, and so much of each."""

Model = TypeVar("Model", bound=BaseModel)

Exact = Annotated[str, BeforeValidator(_as_written)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(_Section):
    """The confidential table: a Parquet or CSV file with one row per leaf, and its columns of counts."""

    path: str
    cells: list[str] = Field(min_length=1)
    geoid: str | None = None
    where: dict[str, str] = {}


class GeographyOptions(_Section):
    """How the units nest: ``levels`` (one column each, root first) or ``widths`` (of hierarchical codes).

    ``units``: a public table that lists the leaves, with the columns that identify and name them. Without it the list
    is taken from the confidential table, and is not protected.
    """

    units: str | None = None
    levels: list[str] | None = Field(default=None, min_length=1)
    separator: str | None = None
    widths: dict[str, StrictInt] | None = None
    root: str = "US"
    root_level: str = "nation"
    names: str | dict[str, str] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> GeographyOptions:
        if (self.levels is None) == (self.widths is None):
            raise ValueError("give either levels (the columns, root first) or widths (characters per level)")
        if self.widths is not None and (self.separator is not None or isinstance(self.names, dict)):
            raise ValueError("separator and names by level belong to levels; with widths, names is one column")
        return self


class Privacy(_Section):
    """Mechanism and budget, as in `topdown.Plan`; numbers are taken as they are written, fractions as "1/3"."""

    mechanism: str = "geometric"
    epsilon: Exact | None = None
    rho: Exact | None = None
    delta: Exact | None = None
    shares: dict[str, Exact | dict[str, Exact]] | None = None
    neighbours: str = "add-remove"
    invariants: list[str] | dict[str, list[str]] = []
    unit: str = "person"
    grid_bits: StrictInt = 10

    def plan(self) -> Plan:
        """The plan that this section describes. Raises `BudgetError` where it is not well defined."""
        return Plan(**self.model_dump())


class NoiseOptions(_Section):
    """Whether counts are drawn within bounds: ``bounds`` for all levels or by level, ``upper`` bounds that are public.

    As in `topdown.Plan`: "none", "boundary-inflated", "truncated" or "normalized"; ``calibration`` = "uncorrected"
    takes the textbook scale for the last two, which costs more than the budget says and is charged so.
    """

    bounds: str | dict[str, str] = NONE
    upper: int | dict[str, int] | None = None
    calibration: str = CALIBRATED


class Projection(_Section):
    """The non-negative method whose whole numbers are released."""

    method: Literal["top-down", "gls-top-down", "joint"] = "gls-top-down"
    weights: Literal["variance", "uniform"] = "variance"
    cross_check: bool = True
    solver: str = "OSQP"


class Output(_Section):
    """Where the release goes; ``csv`` = false leaves out the CSV beside the Parquet files.

    ``microdata``: whether `topdown run` goes on to write one record per person or household, in ``microdata_order``.
    """

    directory: str = "output"
    csv: bool = True
    microdata: bool = False
    microdata_order: Literal["sorted", "shuffled"] = "sorted"


class LedgerOptions(_Section):
    """The ledger in which the release's budget is reserved, and the name of the confidential data set in it."""

    path: str
    dataset: str


class RunConfig(_Section):
    """A release, from input to output. ``folder``: the configuration file's, against which paths are resolved."""

    title: str = ""
    input: Input
    geography: GeographyOptions
    privacy: Privacy
    noise: NoiseOptions = NoiseOptions()
    projection: Projection = Projection()
    output: Output = Output()
    ledger: LedgerOptions | None = None
    # "schema" is a method of pydantic's models, so the section [schema] has another name here.
    attributes: dict[str, list[str]] | None = Field(default=None, alias="schema")
    recodes: dict[str, dict[str, dict[str, list[str]]]] = {}
    folder: Path = Field(default=Path(), exclude=True)

    @model_validator(mode="after")
    def _cells_by_schema(self) -> RunConfig:
        if self.has_schema:
            self.schema_of_cells.codes(self.input.cells)
        return self

    @property
    def schema_of_cells(self) -> Schema:
        """The attributes whose product the cells are, from [schema] and [recodes]; without, the attribute "cell"."""
        return Schema.from_mapping(self.attributes or {"cell": self.input.cells}, self.recodes)

    @property
    def has_schema(self) -> bool:
        """Whether the configuration says what the cells mean."""
        return self.attributes is not None or bool(self.recodes)

    @property
    def asks_queries(self) -> bool:
        """Whether anything but the cells themselves is measured or published exactly, so that the schema matters."""
        shares = [part for part in (self.privacy.shares or {}).values() if isinstance(part, dict)]
        return isinstance(self.privacy.invariants, dict) or any(set(part) != {DETAILED} for part in shares)

    @property
    def input_path(self) -> Path:
        """The confidential table's path."""
        return Path(os.path.normpath(self.folder / self.input.path))

    @property
    def units_path(self) -> Path | None:
        """The path of the public list of units, None where the confidential table is the list."""
        listed = self.geography.units
        return None if listed is None else Path(os.path.normpath(self.folder / listed))

    @property
    def output_path(self) -> Path:
        """The output directory's path."""
        return Path(os.path.normpath(self.folder / self.output.directory))

    def plan(self) -> Plan:
        """The plan of the release, with its bounds. Raises `BudgetError` where it is not well defined."""
        return Plan(**self.privacy.model_dump(), **self.noise.model_dump())

    def resolved(self) -> dict[str, Any]:
        """Every setting, defaults filled in, as JSON-able values."""
        return self.model_dump(mode="json", by_alias=True)

    def fingerprint(self, units: str | None = None) -> str:
        """SHA-256 of everything that decides what is released but the counts; ``units``: the digest of their list.

        Not of where it is written, nor of how it is checked: a run that failed its second solution may go on with
        another solver, from the noise that was drawn. Nor of what records are made of it afterwards.
        """
        apart: Any = {"output": True, "ledger": True, "projection": {"cross_check", "solver"}}
        if not self.asks_queries:
            apart |= {"attributes": True, "recodes": True}
        settled = self.model_dump(mode="json", exclude=apart)
        if self.noise == NoiseOptions():
            del settled["noise"]
        # Measurements are kept by node: those that were kept under another order of nodes are of another release.
        settled["siblings"] = "by GEOID"
        settled["units"] = units
        return hashlib.sha256(json.dumps(settled, sort_keys=True).encode()).hexdigest()


class ThresholdOptions(_Section):
    """A yes-or-no decision: ``cell`` above ``cutoff``, or as a part of the cells ``among``."""

    cell: str
    cutoff: float = Field(allow_inf_nan=False)
    among: list[str] = []


class Variant(NoiseOptions):
    """Another kind of noise for the same study, at the same budget: a ``name`` and what `NoiseOptions` says.

    ``methods``: those to study under it, the study's own where it is left out.
    """

    name: str = Field(min_length=1)
    methods: list[str] | None = None


class StudyOptions(_Section):
    """How a study is simulated and what it looks at.

    ``methods``: labels as `topdown.simulate` takes them. ``workers``: processes, one per processor where it is left
    out. ``reference``: the law that residuals are compared with. ``public_input``: whether the counts are public
    already; if not, everything that the study writes is confidential. ``groups``: columns of the table that group its
    units. ``fund``: the cell in proportion to which a fund is shared out, all cells' sum where it is left out.
    ``variant``: other kinds of noise, whose errors are compared with those of the release's.
    ``geometry``: GeoJSON or TopoJSON with the leaves' outlines, for a map.
    """

    replicates: int = Field(default=1000, ge=1)
    seed: int = 1
    methods: list[str] = Field(
        default=["raw", "top-down/equality", "top-down", "gls", "gls-top-down", "gls-top-down/rounded"], min_length=1
    )
    workers: int | None = Field(default=None, ge=1)
    reference: Literal["noise", "continuous"] = "noise"
    public_input: bool = False
    groups: list[str] = []
    fund: str | None = None
    thresholds: list[ThresholdOptions] = []
    geometry: str | None = None
    variant: list[Variant] = []
    size_classes: list[float] = Field(default=[10, 100, 1_000, 10_000, 100_000], min_length=1)

    @model_validator(mode="after")
    def _meant(self) -> StudyOptions:
        parse_methods(self.methods)
        for variant in self.variant:
            parse_methods(variant.methods or self.methods)
        names = [variant.name for variant in self.variant]
        if len({UNBOUNDED, *names}) != len(names) + 1:
            raise ValueError(f"variant names {listed(names)}: give each variant its own, other than {shown(UNBOUNDED)}")
        size_classes([], self.size_classes)
        if len(set(self.groups)) != len(self.groups):
            raise ValueError(f"groups {listed(self.groups)}: name each column once")
        return self


class StudyConfig(RunConfig):
    """A study: what a release would be, and in ``study`` how its errors are simulated."""

    study: StudyOptions

    def variant_plan(self, variant: Variant) -> Plan:
        """The same privacy with the noise of ``variant``. Raises `BudgetError` where it is not well defined."""
        return Plan(**self.privacy.model_dump(), **variant.model_dump(exclude={"name", "methods"}))

    @property
    def geometry_path(self) -> Path | None:
        """The outlines' path, None without a map."""
        return None if self.study.geometry is None else self.folder / self.study.geometry


def load_config(path: str | Path) -> RunConfig:
    """The release that the TOML file at ``path`` describes.

    Raises `ConfigError` naming the file and the key: a file that is not there or not TOML, an unknown key (with the
    nearest known one), a value of the wrong kind, a seed, a section [study].
    """
    settings = _settings(path)
    if "study" in settings:
        raise ConfigError(
            f"{shown_path(path)}: describes a study (it has a section [study]), not a release: use `topdown study "
            "FILE`, or take the section out"
        )
    return _validated(RunConfig, settings, Path(path))


def load_study(path: str | Path) -> StudyConfig:
    """The study that the TOML file at ``path`` describes.

    Raises `ConfigError` as `load_config` does, and for a file without a section [study].
    """
    settings = _settings(path)
    if "study" not in settings:
        raise ConfigError(
            f"{shown_path(path)}: describes a release, not a study: use `topdown run FILE`, or add a section [study], "
            "such as one line `replicates = 1000` below it"
        )
    return _validated(StudyConfig, settings, Path(path))


def load_any(path: str | Path) -> RunConfig:
    """The release or the study that the TOML file at ``path`` describes, by whether it has a section [study]."""
    return load_study(path) if "study" in _settings(path) else load_config(path)


def _settings(path: str | Path) -> dict[str, Any]:
    path = Path(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{shown_path(path)}: cannot be read: {reason(error)}; give the path of a TOML file"
        ) from None
    except (ValueError, RecursionError) as error:
        # Also for a number of thousands of digits, and for brackets within thousands of others.
        raise ConfigError(f"{shown_path(path)}: not TOML: {unquoted(str(error), LONGEST_LIST)}") from None


def _validated(model: type[Model], settings: dict[str, Any], path: Path) -> Model:
    if "folder" in settings:
        raise ConfigError(
            f"{shown_path(path)}: unknown key folder; paths are relative to the file, output.directory among them"
        )
    try:
        return model.model_validate({**settings, "folder": path.parent})
    except ValidationError as error:
        found = error.errors()
    more = f"; and {len(found) - _MOST_ERRORS} more" if len(found) > _MOST_ERRORS else ""
    raise ConfigError(f"{shown_path(path)}: " + "; ".join(_in_words(one, model) for one in found[:_MOST_ERRORS]) + more)


def _in_words(error: Any, model: type[BaseModel]) -> str:
    """One of pydantic's errors as a sentence that names the key and what to do."""
    where = unquoted(".".join(str(part) for part in error["loc"] if not str(part).startswith("function-")))
    if error["type"] == "missing":
        return f"{where} is missing; give it"
    if error["type"] != "extra_forbidden":
        return f"{where}: {error['msg'].removeprefix('Value error, ')} (is {shown(error['input'], _LONGEST_SETTING)})"
    key = str(error["loc"][-1])
    if "seed" in key.lower() and issubclass(model, StudyConfig):
        return f"unknown key {where}: a study's seed is study.seed"
    if "seed" in key.lower():
        return (
            f"{where}: a release draws from the operating system's entropy and takes no seed, which would publish the "
            "noise; seeds exist in studies only"
        )
    fields = _section(model, error["loc"][:-1]).model_fields
    known = [field.alias or name for name, field in fields.items() if name != "folder"]
    return f"unknown key {where}{nearest(key, known)} (known: {', '.join(known)})"


def _section(model: type[BaseModel], keys: tuple[Any, ...]) -> type[BaseModel]:
    """The model of the section to which a path of keys leads."""
    for key in keys:
        field = model.model_fields.get(str(key))
        if field is not None and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
    return model
