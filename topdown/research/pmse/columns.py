"""The columns of two data sets as numbers, as classifiers and trees use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from topdown.errors import ConfigError, DataError
from topdown.wording import column_name, column_names

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Columns:
    """Original records followed by synthetic ones, which have the label 1.

    ``frame``: the records. ``matrix`` (rows x features): continuous columns as they are, a categorical column as one
    indicator per category, a continuous column with missing values as an indicator more. ``features``: their names.
    ``source``: the column that every feature belongs to. ``continuous``: by feature.
    """

    frame: pd.DataFrame = field(repr=False)
    labels: npt.NDArray[np.int64] = field(repr=False)
    matrix: FloatArray = field(repr=False)
    features: tuple[str, ...]
    source: tuple[int, ...]
    continuous: tuple[bool, ...]

    @property
    def n_rows(self) -> int:
        """The number of records in both data sets together."""
        return len(self.labels)

    @property
    def synthetic_share(self) -> float:
        """The fraction of records that are synthetic, 1/2 for data sets of equal size."""
        return float(self.labels.mean())


def as_frame(data: Any) -> pd.DataFrame:
    """``data`` as a frame: a DataFrame, an Arrow table, a mapping of columns, or an array of one or two dimensions."""
    if hasattr(data, "__arrow_c_stream__") and not isinstance(data, pd.DataFrame | pa.Table):
        data = pa.table(data)
    if isinstance(data, pd.DataFrame):
        return data
    if isinstance(data, pa.Table):
        frame: pd.DataFrame = data.to_pandas()
        return frame
    if isinstance(data, dict):
        return pd.DataFrame(data)
    values = np.asarray(data)
    if values.ndim not in (1, 2):
        raise ConfigError(f"data of {values.ndim} dimensions; give records as rows and their properties as columns")
    values = values.reshape(len(values), -1)
    return pd.DataFrame({f"x{k + 1}": values[:, k] for k in range(values.shape[1])})


def side_by_side(original: Any, synthetic: Any) -> Columns:
    """The two data sets, which must have the same columns, as one. Raises `DataError` where they cannot be compared."""
    first, second = as_frame(original), as_frame(synthetic)
    if list(first.columns) != list(second.columns) and isinstance(synthetic, np.ndarray):
        # An array has no names of its own.
        second = second.set_axis(first.columns, axis=1) if len(first.columns) == len(second.columns) else second
    if not len(first) or not len(second):
        raise DataError(f"{len(first)} original and {len(second)} synthetic records; give at least one of each")
    if set(first.columns) != set(second.columns) or not len(first.columns):
        raise DataError(
            f"the original has the columns {column_names(first.columns)}, the synthetic data "
            f"{column_names(second.columns)}; give both the same"
        )
    names = [str(name) for name in first.columns]
    pieces, features, source, continuous = [], [], [], []
    joined: dict[str, Any] = {}
    for place, (name, column) in enumerate(zip(names, first.columns, strict=True)):
        both = pd.concat([first[column], second[column]], ignore_index=True)
        joined[name] = both
        if _is_continuous(first[column]) != _is_continuous(second[column]):
            raise DataError(f"column {column_name(name)} is a number in one of the data sets only; give it one kind")
        found = _continuous(both, name) if _is_continuous(both) else _categorical(both, name)
        for title, values in found.items():
            pieces.append(values)
            features.append(title)
            source.append(place)
            continuous.append(title == name)
    labels = np.repeat([0, 1], [len(first), len(second)])
    return Columns(
        pd.DataFrame(joined), labels, np.column_stack(pieces), tuple(features), tuple(source), tuple(continuous)
    )


def _is_continuous(column: pd.Series[Any]) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _continuous(column: pd.Series[Any], name: str) -> dict[str, FloatArray]:
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    missing = np.isnan(values)
    if np.isinf(values).any():
        raise DataError(f"column {column_name(name)} has infinite values; give finite ones or leave them missing")
    if not missing.any():
        return {name: values}
    # A constant: if this value depended on other records, one record could change all of them.
    return {name: np.where(missing, 0.0, values), f"{name} is missing": missing.astype(np.float64)}


def _categorical(column: pd.Series[Any], name: str) -> dict[str, FloatArray]:
    codes, categories = pd.factorize(column.astype("string").fillna("missing"), sort=True)
    return {f"{name} = {category}": (codes == k).astype(np.float64) for k, category in enumerate(categories)}
