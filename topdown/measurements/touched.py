"""The answers that were measured because somebody asked for them, of histograms with too many to measure them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.geography.tree import IntArray
from topdown.machine.files import whole_file
from topdown.wording import FAILED, reason, shown_path

TOUCHED = "touched.parquet"
"""The file of a release with all answers that were measured for it, in its folder internal/."""

_NUMBERS_AT_ONCE = 1 << 22
_SCHEMA = pa.schema(
    {
        "level": pa.string(),
        "query": pa.string(),
        "first": pa.int64(),
        "nodes": pa.int64(),
        "answers": pa.list_(pa.int64()),
        "values": pa.list_(pa.int64()),
    }
)


class TouchedAnswers(NamedTuple):
    """Answers to a ``query`` that were asked for at some ``nodes`` of a ``level``, both numbered from the first: all
    ``answers`` that were, rising, and what was measured of them (nodes x answers)."""

    level: int
    query: str
    nodes: slice
    answers: IntArray
    values: npt.NDArray[Any]

    def arrays(self) -> Iterator[tuple[tuple[int, str, int, str], npt.NDArray[Any]]]:
        """Its numbers, each array with a name, for a code of them (`NoiseKey.code`)."""
        for name, numbers in (("answers", self.answers), ("values", self.values)):
            yield (self.level, self.query, self.nodes.start, name), numbers.astype(np.int64)


def write_touched(path: Path, touched: Iterable[TouchedAnswers], levels: tuple[str, ...]) -> None:
    """Write ``touched`` into ``path``, readable by its owner alone: a row for every query at the children of a parent,
    with the numbers of its answers, and the measured values node by node. Raises `DataError`.
    """
    try:
        with (
            whole_file(path, private=True) as partial,
            pq.ParquetWriter(partial, _SCHEMA, compression="zstd") as writer,
        ):
            for rows in _gathered(touched):
                columns = {
                    "level": [levels[one.level] for one in rows],
                    "query": [one.query for one in rows],
                    "first": [one.nodes.start for one in rows],
                    "nodes": [one.nodes.stop - one.nodes.start for one in rows],
                    "answers": _lists([one.answers for one in rows]),
                    "values": _lists([one.values.reshape(-1) for one in rows]),
                }
                writer.write_table(pa.table(columns, schema=_SCHEMA))
    except OSError as error:
        raise DataError(
            f"{shown_path(path)}: cannot be written: {reason(error, FAILED)}; free the space and run again: nothing "
            "was released, and the next run draws the same noise"
        ) from None


def read_touched(path: Path, levels: tuple[str, ...]) -> Iterator[TouchedAnswers]:
    """What `write_touched` wrote, in its order."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(1024):
            for row in range(batch.num_rows):
                level, query, first, count = (batch[k][row].as_py() for k in range(4))
                answers, values = (batch[k][row].values.to_numpy() for k in (4, 5))
                nodes = slice(first, first + count)
                yield TouchedAnswers(levels.index(level), query, nodes, answers, values.reshape(count, -1))


def _gathered(touched: Iterable[TouchedAnswers]) -> Iterator[list[TouchedAnswers]]:
    held, numbers = list[TouchedAnswers](), 0
    for one in touched:
        held.append(one)
        numbers += one.values.size
        if numbers >= _NUMBERS_AT_ONCE:
            yield held
            held, numbers = [], 0
    if held:
        yield held


def _lists(parts: list[npt.NDArray[Any]]) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(parts).astype(np.int64)))
