"""A weak term of a family's program for what no measurement determines, centred so that it moves nothing measured.

Centred anywhere else it would draw every measured answer towards its centre, a large total by many standard deviations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from topdown.geography.tree import FloatArray

_CENTRES, _PULL = 20, 1e-6
"""How often a prior is centred at the solution, at most, and by how much it may then move a measured answer, in the
answer's standard deviations.
"""


class Prior(NamedTuple):
    """The term 1/2 ``precision`` |x - ``centre``|^2 (children x cells), with one ``precision``, or one per cell.
    ``least``: the least precision that was measured.
    """

    precision: Any
    least: float
    centre: FloatArray

    def pull(self, x: FloatArray) -> float:
        """By how much it moves a measured answer at ``x``, at most, in the answer's standard deviations."""
        return float((self.precision * np.abs(x - self.centre)).max(initial=0.0) / np.sqrt(self.least))


class _Centred(Protocol):
    @property
    def prior(self) -> Prior | None: ...

    def nearer(self, x: FloatArray) -> Self: ...


P = TypeVar("P", bound=_Centred)
A = TypeVar("A")


def without_pull(program: P, solve: Callable[[P, A | None], A], found_at: Callable[[A], FloatArray]) -> tuple[P, A]:
    """The ``program`` and its solution by ``solve``, x ``found_at``, with the prior centred at the solution, again and
    again until it moves no measured answer (the proximal point method: Rockafellar 1976). ``solve`` is given what it
    found with the centre before, from which the next solution is not far."""
    found = solve(program, None)
    for _ in range(_CENTRES):
        x = found_at(found)
        if program.prior is None or program.prior.pull(x) <= _PULL:
            break
        program = program.nearer(x)
        found = solve(program, found)
    return program, found
