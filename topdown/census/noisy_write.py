"""Measurements in the layout of the Census Bureau's noisy measurement files, for the tools that read these."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from topdown.census.layouts import noisy_layout as layout
from topdown.census.layouts.noisy_partitions import OWN
from topdown.census.spine import SpineCodes, spine_of
from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.machine.files import make_folder, whole_folder
from topdown.machine.software import version_of
from topdown.measurements.measurements import Answers, Measurements
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.projection.conditions import Limits
from topdown.projection.limits import AnswerLimits
from topdown.projection.solver_inputs import answers_by_level
from topdown.release.manifest import SCHEMA_VERSION
from topdown.tables.tidy import named_failures
from topdown.wording import shown
from topdown.workload import Query

_NUMBERS_AT_ONCE = 1 << 21


class _QueryRows(NamedTuple):
    """One query at some units of a level: ``values`` (units x answers), numbered from the level's first unit."""

    name: str
    axes: Mapping[str, str]
    shape: list[int]
    units: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    variance: FloatArray
    sign: str | None


def write_noisy_measurements(
    measurements: Measurements, root: str | Path, *, limits: AnswerLimits | None = None
) -> tuple[Path, ...]:
    """Write measurements in the format of the Census Bureau's noisy measurement files; returns the files.

    The levels are some of us, state, county, tract, block group and block, from the state or the nation down, their
    units called by GEOIDs or by the spine's codes; the attributes are those of a product
    (`topdown.census.layouts.noisy_layout.PRODUCTS`). Exact answers and limits are constraints; a unit that was not
    measured stands among the constraints alone. Variances have the layout's 32 bits where that is exact or a plan has
    the rest, else 64. `topdown.read_noisy_measurements` reads the same numbers back. Raises `ConfigError` for another
    schema, `DataError` for another geography, and for values that are not whole.

    Args:
        measurements: of one of the products, at every level.
        root: the folder to write into; it is made.
        limits: bounds of the answers, which are written as constraints; by default none.

    Examples:
        >>> noisy = td.read_noisy_measurements("nmf", state="44")
        >>> len(td.write_noisy_measurements(noisy.measurements, "written")) > 0
        True
    """
    folder = Path(root)
    product = layout.product_of(measurements.schema)
    spine = spine_of(measurements.geography)
    _require_nothing_above(measurements, spine)
    rows = {level: list(_level_rows(measurements, level, product, limits)) for level in spine.names}
    narrow = measurements.plan is not None or _is_narrow(rows.values())
    marks = {
        OWN: json.dumps({**_own(measurements, spine), "rows": _numbers_of_rows(rows, spine)}),
        "software": f"topdown {version_of()}",
        "schema version": SCHEMA_VERSION,
    }
    written: list[Path] = []
    with named_failures(folder), whole_folder(folder) as staging:
        top = staging / product.folder.format(spine.run)
        for level, found in rows.items():
            codes = pa.array(spine.codes[level])
            for part, units in spine.partitions(level):
                for kind in (layout.MEASURED, layout.CONSTRAINED):
                    within = top / layout.place(spine.names[level], kind, part)
                    chosen = [row for row in found if (row.sign is None) == (kind == layout.MEASURED)]
                    batches = _batches(chosen, units, codes, product, narrow=narrow)
                    first = next(batches, None)
                    if first is not None:
                        make_folder(within)
                        _write(within / "part-0.parquet", first, batches, marks)
                        written.append(within / "part-0.parquet")
    return tuple(folder / path.relative_to(staging) for path in written)


def _own(measurements: Measurements, spine: SpineCodes) -> dict[str, Any]:
    """What the layout has no place for: the plan, what the levels are called, whether the noise is a release's."""
    return {
        "plan": None if measurements.plan is None else measurements.plan.to_dict(),
        "mechanism": measurements.mechanism,
        "levels": {layout.LEVELS[name]: level for level, name in spine.names.items()},
        "fit_for_release": measurements.fit_for_release,
    }


def _numbers_of_rows(rows: Mapping[str, list[_QueryRows]], spine: SpineCodes) -> dict[str, int]:
    """How many rows every partition has, by its place beneath the product's folder, so that none is missed."""
    found: dict[str, int] = {}
    for level, queries in rows.items():
        for part, units in spine.partitions(level):
            for row in queries:
                kind = layout.MEASURED if row.sign is None else layout.CONSTRAINED
                first, last = np.searchsorted(row.units, [units.start, units.stop])
                place = layout.place(spine.names[level], kind, part)
                found[place] = found.get(place, 0) + int(last - first)
    return {place: number for place, number in found.items() if number}


def _require_nothing_above(measurements: Measurements, spine: SpineCodes) -> None:
    for level, query in measurements.keys:
        if level not in spine.names:
            raise DataError(
                f"level {shown(level)} has measurements of {shown(query)}, and the files have no such level; leave "
                "them out"
            )


def _level_rows(
    measurements: Measurements, level: str, product: layout.Product, limits: AnswerLimits | None
) -> Iterator[_QueryRows]:
    """The queries at a level: measurements, then constraints, of which every unit has at least one."""
    geography = measurements.geography
    nodes = geography.level_slice(level)
    every = np.arange(nodes.stop - nodes.start)
    measured = answers_by_level(measurements)[geography.levels.index(level)]
    listed = False
    for query, (values, variance) in measured.items():
        own, asked = Query.parse(query.name, product.schema), product.axes(query)
        whole = _whole(geography, level, query, Answers(values, variance))
        noisy, exact = np.flatnonzero((variance > 0) & np.isfinite(variance)), np.flatnonzero(variance == 0)
        name = query.name + layout.MEASURED_ENDING
        yield _QueryRows(name, asked, product.shape(own), noisy, whole, variance, None)
        if len(exact):
            listed |= len(exact) == len(every)
            name = product.constraint(query.name, layout.EXACT)
            yield _QueryRows(name, asked, product.shape(own), exact, whole, np.zeros(len(every)), layout.EXACT)
    known = {} if limits is None else limits.by_query
    given = {query: Limits(low[nodes], high[nodes]) for query, (low, high) in known.items()}
    if not listed or (product.listing, layout.AT_MOST) in product.constraints:
        lister = Query.parse(product.listing, measurements.schema)
        nothing = np.zeros((len(every), lister.n_answers))
        given = {lister: Limits(nothing, np.full_like(nothing, np.inf)), **given}
    for query, (low, high) in given.items():
        own, asked = Query.parse(query.name, product.schema), product.axes(query)
        # A least of 0 says nothing, and lists the unit.
        is_lister = query.name == product.listing
        least = every if is_lister else np.flatnonzero((low > 0).any(axis=1))
        # Other readers (BlueDown) look up the greatest of every unit where the product names it so.
        looked_up = is_lister and (query.name, layout.AT_MOST) in product.constraints
        greatest = every if looked_up else np.flatnonzero(np.isfinite(high).any(axis=1))
        most = np.where(np.isfinite(high), high, LARGEST_WHOLE)
        for sign, units, bound in (
            (layout.AT_LEAST, least, low),
            (layout.AT_MOST, greatest, most),
        ):
            name = product.constraint(query.name, sign)
            yield _QueryRows(name, asked, product.shape(own), units, bound.astype(np.int64), np.zeros(len(every)), sign)
    if product.zero is not None and measurements.schema.zeros:
        name, axes = product.zero
        none = np.zeros((len(every), 1), np.int64)
        yield _QueryRows(name, axes, [1] * len(axes), every, none, np.zeros(len(every)), layout.EXACT)


def _whole(geography: Geography, level: str, query: Query, answers: Answers) -> Any:
    """The values as whole numbers; those in files stay there. Raises `DataError` naming the unit of one that is not."""
    if answers.values.dtype.kind in "iu":
        return answers.values
    measured = np.where(np.isfinite(answers.variance)[:, None], np.asarray(answers.values), 0.0)
    wrong = np.flatnonzero((measured != np.rint(measured)).any(axis=1))
    if len(wrong):
        node = geography.level_slice(level).start + int(wrong[0])
        raise DataError(
            f"{geography.describe(node)}, query {shown(query.name)}: a value is not whole, and noisy measurement "
            "files hold whole numbers; measure by the geometric or the discrete Gaussian mechanism"
        )
    return measured.astype(np.int64)


def _is_narrow(rows: Iterable[list[_QueryRows]]) -> bool:
    """Whether every variance is one of 32 bits."""
    found = [row.variance[row.units] for level in rows for row in level]
    return all((one == one.astype(np.float32)).all() for one in found)


def _batches(
    rows: list[_QueryRows], units: slice, codes: pa.Array, product: layout.Product, *, narrow: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of the ``units`` of one partition in batches, query by query."""
    for row in rows:
        first, last = np.searchsorted(row.units, [units.start, units.stop])
        step = max(1, _NUMBERS_AT_ONCE // row.values.shape[1])
        for begin in range(int(first), int(last), step):
            chosen = row.units[begin : min(begin + step, int(last))]
            count = len(chosen)
            kind = np.float32 if narrow else np.float64
            yield pa.RecordBatch.from_pydict(
                {
                    layout.GEOCODE: codes.take(pa.array(chosen)),
                    layout.NAME: pa.repeat(row.name, count),
                    **{name: pa.repeat(row.axes[name], count) for name in product.schema.names},
                    layout.SHAPE: _lists(np.tile(np.array(row.shape, np.int32), (count, 1))),
                    layout.VALUE: _lists(row.values[chosen].astype(np.int64, copy=False)),
                    layout.VARIANCE: pa.array(row.variance[chosen].astype(kind)),
                    layout.SIGN: pa.array([row.sign] * count, pa.string()),
                }
            )


def _lists(table: npt.NDArray[Any]) -> pa.ListArray:
    """A list for every row of ``table``."""
    offsets = np.arange(0, table.size + 1, table.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(table).reshape(-1)))


def _write(path: Path, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], marks: Mapping[str, str]) -> None:
    schema = first.schema.with_metadata(dict(marks))
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        writer.write_batch(first.replace_schema_metadata(dict(marks)))
        for batch in rest:
            writer.write_batch(batch.replace_schema_metadata(dict(marks)))
