"""The order in which families are solved from the root down, and who solves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any, Protocol, TypeVar

from topdown.geography.tree import IntArray, Tree
from topdown.machine.parallel import started, thread_pool


class HasCells(Protocol):
    """What a node has: in which ``cells``."""

    @property
    def cells(self) -> IntArray:
        """The cells with records."""
        ...


Solved = TypeVar("Solved", bound=tuple[Any, ...])


def from_root_down(tree: Tree, solve: Callable[[int, slice, Any], Solved], workers: int) -> list[Solved]:
    """All families, the root's first, level by level.

    ``solve``: of a level, of the nodes of a family, numbered from the level's first, and of what their parent has (None
    for the root), what is found, the histograms of the nodes first. Each family is begun when its parent's histogram is
    known, the largest first, so that one that takes long holds up only what is below it. ``workers``: how many threads
    call ``solve``. Raises what it raises.
    """
    found: dict[tuple[int, int], Solved] = {}
    families = [tree.families(index) for index in range(tree.n_levels - 1)]
    running: dict[Future[Solved], tuple[int, int]] = {}
    with thread_pool(workers) as threads:
        running[started(partial(solve, 0, slice(0, 1), None), threads)] = 0, 0
        try:
            while running:
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    index, first = running.pop(done)
                    solved = found[index, first] = done.result()
                    if index + 1 == tree.n_levels:
                        continue
                    histograms: Sequence[HasCells] = solved[0]
                    begins, sizes = families[index].starts[first:], families[index].sizes[first:]
                    below = zip(begins.tolist(), sizes.tolist(), histograms, strict=False)
                    for begin, size, above in sorted(below, key=lambda one: -one[1] * len(one[2].cells)):
                        task = partial(solve, index + 1, slice(begin, begin + size), above)
                        running[started(task, threads)] = index + 1, begin
        finally:
            for waiting in running:
                waiting.cancel()
    return [found[key] for key in sorted(found)]
