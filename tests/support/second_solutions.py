"""Second solutions that disagree with the release."""

from __future__ import annotations

import pytest

from topdown.projection.check import cvxpy_programs


def let_them_differ(patch: pytest.MonkeyPatch) -> None:
    """Every second solution, of cells and of families, is off by a million counts, whatever solver finds it."""
    for name in ("solve_cells", "family_solution"):
        solve = getattr(cvxpy_programs, name)
        patch.setattr(cvxpy_programs, name, lambda *given, solve=solve: solve(*given) + 1e6)
