"""[study]: how a release's errors are simulated, and which results are studied."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from topdown.config.privacy import NoiseOptions
from topdown.config.release import RunConfig
from topdown.config.toml_section import TomlSection
from topdown.errors import ConfigError, require_known
from topdown.privacy.plan import Plan
from topdown.studies.decisions.expressions import Expression
from topdown.studies.decisions.rule_presets import RULE_PRESETS
from topdown.studies.decisions.rules import Threshold
from topdown.studies.fairness import SIZE_CLASS, size_classes
from topdown.studies.methods import StudiedMethod, parse_methods
from topdown.studies.noise_comparison import UNBOUNDED
from topdown.wording import listed, shown
from topdown.workload import TOTAL, Query, Schema

_MOST_ANSWERS, _FEW_ANSWERS = 60, 12
"""The most answers that a study follows, and the most of a query that it follows by default."""

DOUBTFUL, UNRELIABLE = 0.2, 0.4
"""The coefficients of variation above which a published number is called doubtful, and unreliable, by default: planners
mark the first, and do not use the second."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class ThresholdOptions(TomlSection):
    """A yes-or-no decision for every unit of a level: whether a count, a share or a ratio is above a cutoff."""

    cell: str
    """The cell, or the answer to a query, that is compared."""
    cutoff: float = Field(allow_inf_nan=False)
    """The decision is yes above this number."""
    among: list[str] = Field(default_factory=list)
    """Compare the cell's share of the sum of these cells, of which it is one."""
    per: list[str] = Field(default_factory=list)
    """Compare the cell's ratio to the sum of these cells."""
    level: str | None = None
    """The level of the units; the lowest where it is left out."""

    @model_validator(mode="after")
    def _meant(self) -> ThresholdOptions:
        Threshold(self.cell, self.cutoff, tuple(self.among), tuple(self.per))
        return self


class RuleOptions(TomlSection):
    """A rule of a law or a fund: who is eligible, what is paid, or an indicator, as expressions over counts and
    columns.
    """

    name: str = ""
    """Its name in the report; for a preset, the prefix of the names of its rules."""
    preset: str | None = None
    """Rules by name: "title-1", "section-203", "redistricting", "seats", "cohesion" or "suppression"."""
    eligible: str = ""
    """A yes-or-no decision, such as "children >= 10 and children > 0.02 * school_age"."""
    amount: str = ""
    """The amount to which a unit's payment from a fund is proportional, if it is eligible, such as "0.4 * spending *
    children".
    """
    figure: str = ""
    """One number for all units, such as "(highest(population) - lowest(population)) / mean(population)"."""
    level: str | None = None
    """The level of the units; the lowest where it is left out."""
    areas: str | None = None
    """A file with the units of the lowest level and their areas, such as districts; the rule is then for these."""
    columns: str | None = None
    """A file of exact, public numbers: a row per unit or area, whose first column is its GEOID or name."""
    sums: dict[str, list[str]] = Field(default_factory=dict)
    """Names for sums of cells, for use in expressions."""
    floor: str | dict[str, Any] = ""
    """The least that an eligible unit is paid: an expression, or { column = "prior", share = 0.85 }."""
    ceiling: str = ""
    """The most that a unit is paid, as an expression."""
    total: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The total that a fund pays out, if there is a floor or a ceiling."""
    seats: int | None = Field(default=None, ge=1)
    """For the preset "seats": the number of seats."""
    least: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """For the preset "suppression": counts below this one are suppressed."""

    @model_validator(mode="after")
    def _meant(self) -> RuleOptions:
        if self.preset is not None:
            require_known(self.preset, RULE_PRESETS, "preset")
            if self.eligible or self.amount or self.figure:
                raise ValueError(
                    f"preset = {shown(self.preset)} has its own expressions; leave out either these or the preset"
                )
        elif not self.name:
            raise ValueError("give the rule a name, or a preset")
        if isinstance(self.floor, dict) and not (
            set(self.floor) == {"column", "share"} and isinstance(self.floor["share"], int | float)
        ):
            raise ValueError('floor: write an expression, or { column = "prior", share = 0.85 }')
        if self.level is not None and self.areas is not None:
            raise ValueError(f"rule {shown(self.name)} has both a level and areas; give one of them")
        for text in (self.eligible, self.amount, self.figure, self.ceiling, self.floor_expression):
            if text:
                Expression.parse(text)
        return self

    @property
    def floor_expression(self) -> str:
        """`floor` as an expression."""
        if isinstance(self.floor, str):
            return self.floor
        return f"{float(self.floor['share'])!r} * `{self.floor['column']}`"


class GroupOptions(TomlSection):
    """A grouping of units by columns of the table."""

    columns: Annotated[
        list[str],
        Field(min_length=1),
        BeforeValidator(_as_list, json_schema_input_type=str | Annotated[list[str], Field(min_length=1)]),
    ]
    """The columns, crossed if there are several; "size class" may be one of them."""
    name: str = ""
    """The name of the grouping in the report."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Names in the report for the values of a single column."""
    order: list[str] = Field(default_factory=list)
    """The values of a single column, or their labels, in the order in which the report shows them. Others follow."""
    weight: str | None = None
    """A column of weights of 0 or more for a group's means, such as the number of people of some kind in each unit."""

    @property
    def title(self) -> str:
        """The name of the grouping in the report."""
        return self.name or " × ".join(self.columns) + (f", weighted by {self.weight}" if self.weight else "")

    @model_validator(mode="after")
    def _meant(self) -> GroupOptions:
        if len(set(self.columns)) != len(self.columns):
            raise ValueError(f"columns {listed(self.columns)}: name each column once")
        if len(self.columns) > 1 and (self.labels or self.order):
            raise ValueError(
                f"labels and order are for a single column, and there are {listed(self.columns)}; give them to a group "
                "of one column"
            )
        if self.columns == [SIZE_CLASS]:
            raise ValueError(f"every study has the group {shown(SIZE_CLASS)}; leave it out, or cross it with a column")
        return self


def _grouped(value: Any) -> Any:
    """A column's name, or a list of names, as a grouping."""
    return {"columns": value} if isinstance(value, str | list) else value


class ToleranceOptions(TomlSection):
    """The sizes from which an effect is relevant. A smaller effect that exceeds simulation error is called small."""

    bias: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """A share of a group's mean count, or of the amount due to it."""
    count: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """A group's bias in counts: it is relevant if it is at least this large and at least `bias` of the mean count."""
    money: float = Field(default=0.001, ge=0, allow_inf_nan=False)
    """The share of a fund that is misallocated."""
    decisions: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """The expected share of a rule's decisions that differ from those on the true counts."""


class Variant(NoiseOptions):
    """Another kind of noise for the same study, at the same budget: a name, and the settings of [noise]."""

    name: str = Field(min_length=1)
    """Its name in the report."""
    methods: list[str] | None = None
    """The methods to study with it; by default those of the study."""


class StudyOptions(TomlSection):
    """How a study is simulated, and which results it reports."""

    replicates: int = Field(default=1000, ge=1)
    """How many times the noise is drawn."""
    seed: int = 1
    """The seed of the simulated noise, which makes a study repeatable."""
    methods: list[str] = Field(
        default=["raw", "top-down/equality", "top-down", "gls", "gls-top-down", "gls-top-down/rounded"], min_length=1
    )
    """The methods to compare, as in `topdown.simulate`; the default includes the one to be released."""
    workers: int | None = Field(default=None, ge=1)
    """The number of processes; by default one per processor."""
    reference: Literal["noise", "continuous"] = "noise"
    """The law with which residuals are compared: that of the noise, or the continuous law of the same parameter."""
    public_input: bool = False
    """Whether the counts are already public. If not, everything that the study writes is confidential."""
    groups: list[
        Annotated[GroupOptions, BeforeValidator(_grouped, json_schema_input_type=str | list[str] | GroupOptions)]
    ] = Field(default_factory=list)
    """Columns of the table by which its units are grouped, lists of columns that are crossed, or tables
    [[study.groups]].
    """
    queries: list[str] | None = Field(default=None, min_length=1)
    """Queries whose answers are studied, at every level, in place of the cells. If several queries are measured, the
    default is the total and the queries of one attribute or recode with few categories.
    """
    fund: str | None = None
    """The cell in proportion to which a fund is allocated; by default the sum of all cells, or the first answer."""
    thresholds: list[ThresholdOptions] = Field(default_factory=list)
    """Yes-or-no decisions by a cutoff."""
    rules: list[RuleOptions] = Field(default_factory=list)
    """Rules of laws and funds."""
    metrics: Literal["census"] | None = None
    """"census": adds the Census Bureau's accuracy metrics of one release, by level and size class."""
    impossible: dict[str, str] = Field(default_factory=dict)
    """Impossible results: a name and a condition on cells or answers, such as "`under 18` == total and total > 0". With
    metrics = "census", the units of every level that meet it are counted, in the true counts and in a release.
    """
    geometry: str | None = None
    """GeoJSON or TopoJSON with the outlines of the units of the lowest level, for a map."""
    variant: list[Variant] = Field(default_factory=list)
    """Other kinds of noise, whose errors are compared with those of the release's noise."""
    tolerance: ToleranceOptions = Field(default_factory=ToleranceOptions)
    """The sizes from which an effect is relevant."""
    size_classes: list[float] = Field(default=[10, 100, 1_000, 10_000, 100_000], min_length=1)
    """The counts at which size classes begin."""

    @model_validator(mode="after")
    def _meant(self) -> StudyOptions:
        parse_methods(self.methods)
        for variant in self.variant:
            parse_methods(variant.methods or self.methods)
        names = [variant.name for variant in self.variant]
        if len({UNBOUNDED, *names}) != len(names) + 1:
            raise ValueError(f"variant names {listed(names)}: give each variant its own, other than {shown(UNBOUNDED)}")
        size_classes([], self.size_classes)
        if self.impossible and self.metrics is None:
            raise ValueError('impossible needs the metrics of one release; give metrics = "census" too')
        for text in self.impossible.values():
            Expression.parse(text)
        titles = [group.title for group in self.groups]
        if len({SIZE_CLASS, *titles}) != len(titles) + 1:
            raise ValueError(f"groups {listed(titles)}: name each column once, or give a group a name of its own")
        return self


class ReportOptions(TomlSection):
    """Which numbers the report marks as unreliable, by the coefficient of variation (standard deviation divided by
    published count).
    """

    doubtful: float = Field(default=DOUBTFUL, gt=0, allow_inf_nan=False)
    """Numbers above this coefficient of variation are shaded."""
    unreliable: float = Field(default=UNRELIABLE, gt=0, allow_inf_nan=False)
    """Numbers above this coefficient of variation are shaded darker."""

    @model_validator(mode="after")
    def _meant(self) -> ReportOptions:
        if self.doubtful > self.unreliable:
            raise ValueError(
                f"doubtful = {self.doubtful:g} is above unreliable = {self.unreliable:g}: doubtful must be the "
                f"smaller one"
            )
        return self


class StudyConfig(RunConfig):
    """The file of `topdown study`: the sections of a release, with ``study`` (how its errors are simulated) and
    ``report`` (which numbers its page shades).
    """

    is_study: ClassVar[bool] = True

    study: StudyOptions
    report: ReportOptions = Field(default_factory=ReportOptions)

    @model_validator(mode="after")
    def _studied_as_released(self) -> StudyConfig:
        if self.projection.upward is not None:
            raise ValueError(
                "projection.upward: a study simulates methods by name, whose upward pass starts at the leaves; leave "
                "it out; topdown check --errors shows the errors of a release with it"
            )
        if self.projection.order is not None:
            raise ValueError(
                'projection.order: a study simulates methods by name: "gls-top-down" fixes the total first at a root '
                'that is not exact, and "gls-top-down/at-once" fixes all queries at once; leave it out'
            )
        return self

    @property
    def methods(self) -> list[str]:
        """The methods to study: those of the file, or the default methods and the one that would be released."""
        released = StudiedMethod(self.projection.method, nonnegative=True, rounded=True).label
        named = self.study.methods
        return named if released in named or "methods" in self.study.model_fields_set else [*named, released]

    @property
    def all_methods(self) -> list[str]:
        """The methods to study, those of the variants too."""
        return [*self.methods, *(label for variant in self.study.variant for label in variant.methods or ())]

    def variant_plan(self, variant: Variant) -> Plan:
        """The same privacy with the noise of ``variant``. Raises `BudgetError` if it is not well defined."""
        return Plan(**self.privacy.arguments(), **variant.model_dump(exclude={"name", "methods"}))

    def studied_queries(self, schema: Schema, plan: Plan) -> list[str] | None:
        """The queries whose answers are studied, None if the cells are studied.

        Raises `ConfigError` for an unknown query, and for more answers than a report can show.
        """
        if self.study.queries is None and not self.asks_queries:
            return None
        named = self.study.queries
        if named is None:
            asked = dict.fromkeys(query for level in plan.levels for query in plan.queries(level))
            parsed = [Query.parse(query, schema) for query in asked]
            short = [q.name for q in parsed if len(q.factors) == 1 and q.n_answers <= _FEW_ANSWERS]
            named = [TOTAL, *short]
        answers = sum(Query.parse(query, schema).n_answers for query in named)
        if answers > _MOST_ANSWERS:
            raise ConfigError(
                f"study.queries has {answers} answers, more than the {_MOST_ANSWERS} that a report shows; name fewer "
                "queries, or a recode that groups categories"
            )
        return named

    @property
    def geometry_path(self) -> Path | None:
        """The outlines' path, None without a map."""
        return None if self.study.geometry is None else self.folder / self.study.geometry
