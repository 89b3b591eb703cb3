"""A release that lies in the files of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topdown as td
from topdown.pipeline.parts import filed_release
from topdown.release.layouts import WITH_RECORDS
from topdown.workload import Query


def test_entries_are_read_once_for_all_queries_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    geography = td.Geography.from_geoids(["a1", "a2", "b1"], {"state": 1, "block": 2}, root_level="nation")
    schema = td.Schema.from_mapping({"sex": ["f", "m"], "age": ["0", "1"]})
    files: dict[Path, dict[str, Any]] = {
        Path("above"): {"cells above": np.array([0, 3, 0, 3]), "counts above": np.array([1, 5, 1, 2])},
        Path("below"): {"cells 2": np.array([3, 0, 3, 3]), "counts 2": np.array([2, 1, 0, 3])},
    }
    read: list[Path] = []
    monkeypatch.setattr(filed_release, "held", lambda path: read.append(path) or files[path])
    blocks = [filed_release._Block(0, 4, Path("above"), "above"), filed_release._Block(4, 8, Path("below"), "2")]
    entries = filed_release.FiledEntries(np.array([0, 2, 4, 4, 5, 7, 8]), blocks)
    release = td.Release(geography, schema, entries, WITH_RECORDS, "top-down", fit_for_release=True)
    nodes = slice(0, 6)
    assert release.answers_of(nodes, Query.parse("total", schema)).ravel().tolist() == [6, 3, 0, 2, 1, 3]
    assert release.answers_of(nodes, Query.parse("sex", schema)).tolist()[0] == [1, 5]
    assert release.answers_of(nodes, Query.parse("age", schema)).tolist()[4] == [1, 0]
    assert read == [Path("above"), Path("below")]
    # Others are read anew.
    assert release.answers_of(slice(1, 2), Query.parse("total", schema)).tolist() == [[3]]
    assert read[2:] == [Path("above")]
