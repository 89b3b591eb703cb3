"""The steps of a release in parts that workers do, each from files to files, for the part with a given number.

A part's counts are read, measured and dropped before anything is computed from the measurements. A complete file is not
written again; if a step is repeated, its result is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from topdown.confidential.entries import Entries
from topdown.confidential.measure_piece import Place, measure_piece
from topdown.errors import DataError, ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree
from topdown.measurements.journal import MEASUREMENTS, BegunRelease, Journal, MeasuredOtherwise
from topdown.noise import KeyedSource
from topdown.noise.randomness import read_exactly
from topdown.pipeline.parts import array_steps
from topdown.pipeline.parts.array_steps import Part
from topdown.pipeline.parts.filed_release import histograms_as_arrays, histograms_of_arrays, measured_as_arrays
from topdown.pipeline.parts.part_cut import entries_of_arrays
from topdown.pipeline.parts.part_job import Folder, Record, held, held_bound, named, part_of_arrays
from topdown.pipeline.parts.part_store import put_durably, take
from topdown.privacy.plan import MOVE_UP
from topdown.projection.check.certificate import FAMILY_TOLERANCE, require_certificate
from topdown.projection.check.cross_checks import families_again, parts_again
from topdown.projection.histograms.families import Sparse, certificate_of
from topdown.projection.histograms.subtrees import Roots
from topdown.projection.invariants import Contradiction
from topdown.projection.solver_inputs import in_words
from topdown.release.whole_counts import Release, SparseCounts
from topdown.tables.geography_table import read_as_written
from topdown.wording import shown_path


class At(NamedTuple):
    """A step of one part: the folder of the release's parts, and the part's number."""

    root: Path
    part: int


def up(at: At) -> str:
    """Write what a part's measurements say about its uppermost units; returns the code of the measurements."""
    folder, record, begun = _begun(at.root)
    if not is_up(folder, record, at.part):
        job, said = _job(record, begun), array_steps.Arrays()
        lowest = None if record.at_once else partial(_lowest_going_up, job, record)
        part, measured = _measured(folder, record, begun, at.part, lowest)
        if record.at_once:
            _keep_measured(folder, record, at.part, part, measured)
        else:
            limits = _limits(record, folder.limits(at.part))
            roots = _named(folder, record, part, lambda: array_steps.up(job, part, measured, limits))
            said = array_steps.roots_as_arrays(roots)
        put_durably(folder.up(at.part), {**said, "code": np.array(_code(begun, record, part, measured))})
    return str(held(folder.up(at.part))["code"])


def top(root: Path) -> str:
    """The release down to the parts' uppermost units, from what all parts say of these, to files; the code of all that
    was measured, which is kept before anything is derived from it."""
    folder, record, begun = _begun(root)
    roots_of_parts = [] if record.at_once else [folder.roots(number) for number in range(record.n_parts)]
    done = [folder.top, folder.measured_above, *roots_of_parts]
    if begun.measured is not None and all(take(path) is not None for path in done):
        return begun.measured
    said = [held(folder.up(number)) for number in range(record.n_parts)]
    above, measured = _measured_above(folder, record, begun)
    codes = np.frombuffer("".join(str(one["code"]) for one in said).encode("ascii"), np.uint8)[:, None]
    answers = [(("", "parts"), codes), *_answers(record, Part(above, 0, (0,) * above.n_levels), measured)]
    code, cut = begun.key.code(MEASUREMENTS, answers), (record.level, record.leaves)
    with _made_again(folder.up(number) for number in range(record.n_parts)):
        journal(folder, record).keep_code(begun, code, cut)
    put_durably(folder.measured_above, measured_as_arrays(measured[: record.keeps], 0))
    if record.at_once:
        put_durably(folder.top, {})
        return code
    roots = Roots.side_by_side([array_steps.roots_of_arrays(one, record.its_schema) for one in said])
    del said
    part, job = Part(above, 0, (0,) * above.n_levels), _job(record, begun)
    limits = _limits(record, folder.limits_above)
    whole = _named(folder, record, part, lambda: array_steps.top(job, above, measured, roots, limits))
    certificate = _certificate(folder, record, part, whole, [*measured, roots.answers])
    for number, (start, stop) in enumerate(record.siblings):
        put_durably(folder.roots(number), histograms_as_arrays("roots", whole.histograms[start:stop]))
    checked = _solved_again(record, begun, job, whole, (", ".join(record.levels[: record.level + 1]), ()))
    made = {
        **histograms_as_arrays("above", whole.histograms),
        "certificate": certificate,
        "programs": np.array(whole.programs),
        "cross check": checked,
    }
    put_durably(folder.top, made)
    return code


def down(at: At) -> None:
    """Write the release of a part, computed from the released histograms of its uppermost units."""
    folder, record, begun = _begun(at.root)
    if record.at_once or is_down(folder, record, at.part):
        return
    roots = histograms_of_arrays("roots", held(folder.roots(at.part)))
    before = str(held(folder.up(at.part))["code"])
    job = _job(record, begun)
    part, measured = _measured(folder, record, begun, at.part)
    gone_up, limits = _lowest_going_up(job, record, part) + 1, _limits(record, folder.limits(at.part))
    if _code(begun, record, part, measured[:gone_up]) != before:
        raise DataError(
            f"part {named(at.part)}: it measured other numbers going down than going up, which another version of "
            "Topdown or of its libraries may do; nothing was released: give all workers the same"
        )
    whole = _named(folder, record, part, lambda: array_steps.down(job, part, measured, roots, limits))
    made = {
        "certificate": _certificate(folder, record, part, whole, measured),
        "programs": np.array(whole.programs),
        "code": np.array(_code(begun, record, part, measured, gone_up)),
        "cross check": np.array("null"),
    }
    if at.part in parts_again(record.n_parts, begun.ties):
        made["cross check"] = _solved_again(record, begun, job, whole, (f"part {named(at.part)}", (at.part,)))
    _require_sums(record, part, whole, at.part)
    for k in range(2, part.tree.n_levels):
        made |= histograms_as_arrays(str(k), whole.histograms[part.tree.level(k)])
    if record.parts_keep:
        _keep_measured(folder, record, at.part, part, measured)
    put_durably(folder.down(at.part), made)


def _keep_measured(folder: Folder, record: Record, number: int, part: Part, measured: array_steps.Measured) -> None:
    put_durably(folder.measured(number), measured_as_arrays(measured[: record.keeps - part.top], part.top))


def is_up(folder: Folder, record: Record, part: int) -> bool:
    """Whether the step up of a part is done, and all of its files are complete."""
    written = [folder.up(part)] + [folder.measured(part)] * record.at_once
    return all(take(path) is not None for path in written)


def is_down(folder: Folder, record: Record, part: int) -> bool:
    """Whether the step down of a part is done, and all of its files are complete. Where the whole tree is projected at
    once a part is done when it is measured.
    """
    if record.at_once:
        return is_up(folder, record, part)
    written = [folder.down(part)] + [folder.measured(part)] * record.parts_keep
    return all(take(path) is not None for path in written)


def keep_below(root: Path) -> None:
    """Keep the code of what all parts measured only going down, before any of it is released. Raises `DataError` where
    a run before measured other values.
    """
    folder, record, begun = _begun(root)
    if record.upward is None:
        return  # all was measured going up
    said = "".join(str(held(folder.down(number))["code"]) for number in range(record.n_parts))
    codes = np.frombuffer(said.encode("ascii"), np.uint8)[:, None]
    with _made_again(folder.down(number) for number in range(record.n_parts)):
        journal(folder, record).keep_below(begun, begun.key.code(MEASUREMENTS, [(("", "parts below"), codes)]))


@contextmanager
def _made_again(files: Iterable[Path]) -> Iterator[None]:
    """Remove ``files`` if their measurements differ from those before, so that the next run measures again."""
    try:
        yield
    except MeasuredOtherwise:
        for path in files:
            path.unlink(missing_ok=True)
        raise


def journal(folder: Folder, record: Record) -> Journal:
    """The journal of a release in parts."""
    return Journal(folder.root.parent, record.configuration, record.input)


def _begun(root: Path) -> tuple[Folder, Record, BegunRelease]:
    folder = Folder(root)
    record = Record.whole(folder)
    begun = journal(folder, record).read()
    if begun is None:
        raise DataError(f"{shown_path(root.parent)}: no release was begun here; topdown run begins it")
    return folder, record, begun


def _job(record: Record, begun: BegunRelease) -> array_steps.Job:
    # The stream that breaks ties in the whole tree is made in the same way.
    return record.job(KeyedSource(read_exactly(begun.ties, 32)))


def _lowest_going_up(job: array_steps.Job, record: Record, part: Part) -> int:
    return array_steps.lowest_going_up(job, part, limited=record.limited)


def _limits(record: Record, path: Path) -> array_steps.GivenLimits:
    """The limits of a part, from its file. Raises `Torn`."""
    return array_steps.limits_of_arrays(held(path), record.its_schema) if record.limited else array_steps.NO_LIMITS


def _measured(
    folder: Folder, record: Record, begun: BegunRelease, number: int, lowest: Callable[[Part], int] | None = None
) -> tuple[Part, array_steps.Measured]:
    """A part and its measurements, down to its ``lowest`` level or all of them. Its counts are dropped here."""
    streams = begun.key.streams(record.counts)
    found = held_bound(folder.counts(number), streams)
    part = part_of_arrays(found)
    entries = entries_of_arrays(found, part.tree, record.its_schema.n_cells)
    levels = range(1, part.tree.n_levels if lowest is None else lowest(part) + 1)
    places = _places(folder, record, {k: (part.top + k, part.firsts[k]) for k in levels})
    return part, measure_piece(entries, part.tree, record.its_schema, record.its_plan, streams, places, record.levels)


def _measured_above(folder: Folder, record: Record, begun: BegunRelease) -> tuple[Tree, array_steps.Measured]:
    """The tree down to the parts' uppermost units, and the measurements above them. Its counts are dropped here."""
    streams = begun.key.streams(record.counts)
    found = held_bound(folder.counts_above, streams)
    tree = Tree.from_family_sizes([found[f"families {k}"] for k in range(record.level)])
    kinds = [found[name].astype(np.int64) for name in ("sizes", "cells", "counts")]
    entries = Entries(np.concatenate([[0], np.cumsum(kinds[0])]), *kinds[1:])
    places = _places(folder, record, {k: (k, 0) for k in range(record.level)})
    measured = measure_piece(entries, tree, record.its_schema, record.its_plan, streams, places, record.levels)
    return tree, measured[:-1]


def _places(folder: Folder, record: Record, levels: Mapping[int, tuple[int, int]]) -> dict[int, Place]:
    """Where the levels of a piece are in the whole tree, from their numbers there and those of their first nodes."""
    taken = np.zeros(record.offsets[-1], np.int16)  # pages that nobody touches take no memory
    if record.its_plan.only_child == MOVE_UP:
        taken = held(folder.taken)["taken"]
    bounds = record.offsets
    return {
        k: Place(record.levels[level], first, taken[bounds[level] : bounds[level + 1]])
        for k, (level, first) in levels.items()
    }


def _answers(record: Record, part: Part, measured: array_steps.Measured) -> Iterator[tuple[tuple[str, str], Any]]:
    """What was measured of a piece, by level and query."""
    for k, level in enumerate(measured):
        for query, answers in sorted(level.items(), key=lambda one: one[0].name):
            yield (record.levels[part.top + k], query.name), answers.values


Made = TypeVar("Made")


def _named(folder: Folder, record: Record, part: Part, compute: Callable[[], Made]) -> Made:
    """The result of ``compute``; a contradiction is raised as an error that names its unit."""
    try:
        return compute()
    except Contradiction as contradiction:
        node = record.node(part, contradiction.node)
        raise in_words(read_as_written(folder.geography), Contradiction(node, str(contradiction))) from None


def _certificate(
    folder: Folder, record: Record, part: Part, whole: array_steps.Whole, measured: array_steps.Measured
) -> npt.NDArray[Any]:
    """The certificate of a part's histograms, as an array. Raises `ProjectionError` where it does not hold."""
    found = certificate_of(whole.residuals, measured, FAMILY_TOLERANCE)
    found = replace(found, worst_node=record.node(part, found.worst_node))
    if not found.holds():
        require_certificate(found, read_as_written(folder.geography), record.method, "tree")
    return np.array(json.dumps(asdict(found)))


def _require_sums(record: Record, part: Part, whole: array_steps.Whole, number: int) -> None:
    """Refuse a part whose families do not add up, as of every release. Raises `ProjectionError`."""
    tree, histograms = part.tree, whole.histograms[1:]
    uppermost = whole.histograms[tree.level(1)]
    cells, place = np.unique(np.concatenate([one.cells for one in uppermost]), return_inverse=True)
    sums = np.bincount(place.reshape(-1), np.concatenate([one.values for one in uppermost]), len(cells))
    every = [Sparse(cells, np.asarray(sums, dtype=np.float64)), *histograms]
    numbers = pa.array([f"{node:012d}" for node in range(tree.n_nodes)])
    try:
        Release.of_entries(
            Geography(record.levels[part.top :], tree, numbers),
            record.its_schema,
            SparseCounts.of_nodes(every),
            method=record.method,
            fit_for_release=True,
        )
    except ProjectionError:
        raise ProjectionError(f"part {named(number)}: its histograms do not add up; please report this") from None


def _solved_again(
    record: Record,
    begun: BegunRelease,
    job: array_steps.Job,
    whole: array_steps.Whole,
    piece: tuple[str, tuple[int, ...]],
) -> npt.NDArray[Any]:
    """A second solution of a ``piece`` (`families_again`), where one is asked for, as an array. Raises
    `ProjectionError`."""
    if record.solver is None:
        return np.array("null")
    found = families_again(whole.descent, job.its_method, whole.histograms, record.solver, begun.ties, piece)
    return np.array(json.dumps(asdict(found)))


def _code(begun: BegunRelease, record: Record, part: Part, measured: array_steps.Measured, first: int = 0) -> str:
    """The code of what was measured of a part, from its level ``first`` on."""
    return begun.key.code(MEASUREMENTS, _answers(record, part, [{} for _ in range(first)] + measured[first:]))
