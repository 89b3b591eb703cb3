"""The input that all steps of a release in parts share, written once when the tree is cut, and the paths of their
files.

It contains no key and no count: a worker reads the key from the release's own folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree
from topdown.noise import KeyedSource
from topdown.noise.key import NoiseStreams
from topdown.pipeline.parts.array_steps import Job, Part
from topdown.pipeline.parts.cut_points import parts_of
from topdown.pipeline.parts.part_store import put, take
from topdown.privacy.plan import Plan
from topdown.projection.histograms.passes import Order
from topdown.wording import shown_path
from topdown.workload import Schema


class Torn(DataError):
    """A file between two steps is damaged: the step that writes it has to be repeated."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: is not what was written; run again: it is made again, with the same noise")
        self.path = path

    def __reduce__(self) -> tuple[type[Torn], tuple[str]]:
        return Torn, (self.path,)


@dataclass(frozen=True)
class Folder:
    """The paths of the files of a release in parts: all below ``root``, which other users cannot read."""

    root: Path

    @property
    def job(self) -> Path:
        """The `Record`."""
        return self.root / "job"

    @property
    def geography(self) -> Path:
        """The table of units, as published."""
        return self.root / "geography.parquet"

    @property
    def taken(self) -> Path:
        """The number of levels whose shares every unit took."""
        return self.root / "cut" / "taken"

    def limits(self, part: int) -> Path:
        """The public limits of a part's units."""
        return self.root / "limits" / named(part)

    @property
    def limits_above(self) -> Path:
        """The limits of the units down to the parts' uppermost."""
        return self.root / "limits" / "above"

    @property
    def counts_above(self) -> Path:
        """The confidential entries of the units down to the parts' uppermost."""
        return self.root / "cut" / "above"

    def counts(self, part: int) -> Path:
        """A part's confidential entries."""
        return self.root / "cut" / named(part)

    def up(self, part: int) -> Path:
        """What a part's measurements say about its uppermost units."""
        return self.root / "up" / named(part)

    @property
    def top(self) -> Path:
        """The release down to the parts' uppermost units, with its certificate; the step is done when this exists."""
        return self.root / "top" / "above"

    def roots(self, part: int) -> Path:
        """The released histograms of a part's uppermost units."""
        return self.root / "top" / named(part)

    @property
    def measured_above(self) -> Path:
        """The measurements of the units above the parts' uppermost."""
        return self.root / "measured" / "above"

    def measured(self, part: int) -> Path:
        """The measurements of a part."""
        return self.root / "measured" / named(part)

    def down(self, part: int) -> Path:
        """The release of the units of a part below its uppermost, with its certificate."""
        return self.root / "down" / named(part)

    @property
    def starts(self) -> Path:
        """The number of the first entry of every unit."""
        return self.root / "starts"

    def summed(self, tree: str, unit: int) -> Path:
        """The release of some units of a ``tree``, sums of those that are measured, from number ``unit`` on."""
        return self.root / "summed" / tree / f"{unit:012d}"

    def sum_starts(self, tree: str) -> Path:
        """The number of the first entry of every unit of such a ``tree``, and of the first unit of every such file."""
        return self.root / "summed" / f"{tree} starts"

    @property
    def public(self) -> Path:
        """Files that are published as they are."""
        return self.root / "public"

    def digest(self, name: str) -> Path:
        """The digest of such a file."""
        return self.root / "written" / name.replace("/", " ")


def named(part: int) -> str:
    """A part's name."""
    return f"{part:04d}"


def held(path: Path) -> dict[str, Any]:
    """The arrays that a step wrote to ``path``. Raises `Torn`."""
    found = take(path)
    if found is None:
        raise Torn(shown_path(path))
    return found


def put_bound(path: Path, arrays: Mapping[str, npt.NDArray[Any]], streams: NoiseStreams) -> None:
    """Write confidential entries to ``path`` with a code of them under the key of their noise. Raises `OSError`."""
    put(path, {**arrays, "code": np.array(_code(path, arrays, streams))})


def take_bound(path: Path, streams: NoiseStreams) -> dict[str, Any] | None:
    """The arrays that `put_bound` wrote to ``path``; None where there are none, or where they belong to other counts or
    another part.
    """
    found = take(path)
    code = None if found is None else found.pop("code", None)
    return found if found is not None and str(code) == _code(path, found, streams) else None


def held_bound(path: Path, streams: NoiseStreams) -> dict[str, Any]:
    """As `take_bound`. Raises `Torn`."""
    found = take_bound(path, streams)
    if found is None:
        raise Torn(shown_path(path))
    return found


def _code(path: Path, arrays: Mapping[str, npt.NDArray[Any]], streams: NoiseStreams) -> str:
    return streams.code(f"entries {path.name}", arrays.items())


@dataclass(frozen=True)
class Record:
    """The description of a release in parts.

    ``configuration`` and ``input``: the digests that identify it. ``counts``: the code of the whole counts, to which
    the noise is bound. ``sizes``: the number of nodes of every level. ``level``: the number of the level where the tree
    is cut; ``leaves``: the largest number of leaves of a part with several siblings; ``siblings``: the range of every
    part's uppermost nodes. ``tables``: the tables of answers that are written beside the release; ``csv``: whether they
    are also written as text. ``solver``: the solver of the second solution, None where there is none. ``marks``: the
    metadata of every table. ``geography``: the digest of the table of units. ``upward``: where the upward pass starts,
    by default at the leaves. ``order``: the queries that are made non-negative first, None for the default. ``keeps``:
    the number of levels, root first, whose measurements are kept. ``weights``: of the measurements. ``limited``:
    whether there are limits. ``cells``: the names of the cells; ``attributed``: whether they are the product of given
    attributes. ``at_once``: whether the parts are only measured, and the whole tree is projected at once, as where the
    cells alone are measured.
    """

    configuration: str
    input: str = field(repr=False)
    levels: tuple[str, ...]
    sizes: tuple[int, ...]
    schema: dict[str, Any]
    plan: dict[str, Any]
    method: str
    level: int
    leaves: int
    siblings: tuple[tuple[int, int], ...]
    tables: tuple[str, ...]
    csv: bool
    solver: str | None
    marks: dict[str, str]
    geography: str = ""
    upward: str | None = None
    order: Order | None = None
    keeps: int = 1
    weights: str = "variance"
    limited: bool = False
    cells: tuple[str, ...] = ()
    attributed: bool = True
    at_once: bool = False
    counts: str = field(default="", repr=False)

    @classmethod
    def of(cls, geography: Geography, plan: Plan, name: tuple[str, str], cut: tuple[int, int], **said: Any) -> Record:
        """The record of a release called ``name``, by its configuration and its input, that is ``cut`` at a level into
        parts of so many leaves; ``said``: its other fields."""
        tree = geography.tree
        siblings = tuple((one.start, one.stop) for one in parts_of(tree, *cut))
        sizes = tuple(int(size) for size in np.diff(tree.level_offsets))
        return cls(
            *name,
            levels=geography.levels,
            sizes=sizes,
            plan=plan.to_dict(),
            level=cut[0],
            leaves=cut[1],
            siblings=siblings,
            **said,
        )

    @classmethod
    def read(cls, folder: Folder) -> Record | None:
        """The record in ``folder``; None where there is none, or it is damaged."""
        found = take(folder.job)
        if found is None:
            return None
        said = json.loads(found["json"].tobytes())
        for name in ("levels", "sizes", "tables", "cells"):
            said[name] = tuple(said[name])
        said["siblings"] = tuple((first, stop) for first, stop in said["siblings"])
        return cls(**said)

    @classmethod
    def whole(cls, folder: Folder) -> Record:
        """The record in ``folder``. Raises `Torn`."""
        found = cls.read(folder)
        if found is None:
            raise Torn(shown_path(folder.job))
        return found

    def write(self, folder: Folder) -> None:
        """Write it to ``folder``. Raises `OSError`."""
        put(folder.job, {"json": np.frombuffer(json.dumps(asdict(self)).encode(), np.uint8)})

    @property
    def parts_keep(self) -> bool:
        """Whether measurements of the parts are kept, and not only those above them."""
        return self.keeps > self.level

    @property
    def n_parts(self) -> int:
        """The number of parts."""
        return len(self.siblings)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The number of every level's first node, and the number of all nodes."""
        return tuple(int(one) for one in np.concatenate([[0], np.cumsum(self.sizes)]))

    @cached_property
    def its_schema(self) -> Schema:
        """The schema of the cells."""
        return Schema.from_mapping(**self.schema)

    @cached_property
    def its_plan(self) -> Plan:
        """The plan by which parts are measured."""
        return Plan.from_dict(self.plan).for_levels(self.levels).for_schema(self.its_schema)

    def job(self, ties: KeyedSource) -> Job:
        """What its parts have in common, where ``ties`` is the key that breaks ties."""
        more = self.upward, self.order, self.weights
        return Job(self.its_schema, self.levels, self.its_plan, self.method, ties, *more)

    def node(self, part: Part, number: int) -> int:
        """The node of the whole tree that is ``number`` of a part's tree."""
        k = part.tree.level_of(number)
        first: int = part.tree.level(k).start
        return self.offsets[part.top + k] + part.firsts[k] + number - first


def part_as_arrays(tree: Tree, siblings: slice) -> dict[str, Any]:
    """A part of ``tree`` as arrays by name."""
    piece, nodes = tree.part(siblings)
    top = tree.level_of(siblings.start) - 1
    firsts = [int(nodes[piece.level(k).start]) - tree.level(top + k).start for k in range(piece.n_levels)]
    sizes = {f"families {k}": piece.families(k).sizes for k in range(piece.n_levels - 1)}
    return {"top": np.array(top), "firsts": np.array(firsts), **sizes}


def part_of_arrays(found: dict[str, Any]) -> Part:
    """What `part_as_arrays` made."""
    firsts = tuple(int(one) for one in found["firsts"])
    sizes = [found[f"families {k}"] for k in range(len(firsts) - 1)]
    return Part(Tree.from_family_sizes(sizes), int(found["top"]), firsts)
