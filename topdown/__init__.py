"""Differentially private releases of hierarchical counts: noise, projections that make them add up, what they do."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topdown import errors, noise, privacy, synthesis
    from topdown.counts import Counts
    from topdown.door import measure
    from topdown.evaluation import fairness, theory
    from topdown.evaluation.errors_table import ErrorTable
    from topdown.evaluation.rules import FundShare, Threshold
    from topdown.evaluation.simulate import simulate
    from topdown.geography import Geography
    from topdown.measurements import Measurements
    from topdown.noise import SecureSource, SeededSource
    from topdown.privacy.plan import Plan
    from topdown.projection.estimate import Estimate
    from topdown.projection.project import project
    from topdown.release import Release, round_counts
    from topdown.verify import verify_release
    from topdown.workload import Attribute, Query, Recode, Schema, Workload

    __version__: str

__all__ = [
    "Attribute",
    "Counts",
    "ErrorTable",
    "Estimate",
    "FundShare",
    "Geography",
    "Measurements",
    "Plan",
    "Query",
    "Recode",
    "Release",
    "Schema",
    "SecureSource",
    "SeededSource",
    "Threshold",
    "Workload",
    "__version__",
    "errors",
    "fairness",
    "measure",
    "noise",
    "privacy",
    "project",
    "round_counts",
    "simulate",
    "synthesis",
    "theory",
    "verify_release",
]

# Loaded when used. Together they and what they stand on (scipy's statistics, cvxpy) take seconds, which a program that
# asks for a plan, or for --help, need not wait for. For the same reason modules import cvxpy, scipy.stats, networkx and
# scikit-learn inside the functions that call them.
_MODULES = {
    "errors": "topdown.errors",
    "fairness": "topdown.evaluation.fairness",
    "noise": "topdown.noise",
    "privacy": "topdown.privacy",
    "synthesis": "topdown.synthesis",
    "theory": "topdown.evaluation.theory",
}
_HOMES = {
    "Attribute": "topdown.workload",
    "Counts": "topdown.counts",
    "ErrorTable": "topdown.evaluation.errors_table",
    "Estimate": "topdown.projection.estimate",
    "FundShare": "topdown.evaluation.rules",
    "Geography": "topdown.geography",
    "Measurements": "topdown.measurements",
    "Plan": "topdown.privacy.plan",
    "Query": "topdown.workload",
    "Recode": "topdown.workload",
    "Release": "topdown.release",
    "Schema": "topdown.workload",
    "SecureSource": "topdown.noise",
    "SeededSource": "topdown.noise",
    "Threshold": "topdown.evaluation.rules",
    "Workload": "topdown.workload",
    "measure": "topdown.door",
    "project": "topdown.projection.project",
    "round_counts": "topdown.release",
    "simulate": "topdown.evaluation.simulate",
    "verify_release": "topdown.verify",
}

if not TYPE_CHECKING:  # a type checker that saw it would let any name pass

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            found = import_module(_MODULES[name])
        elif name in _HOMES:
            found = getattr(import_module(_HOMES[name]), name)
        elif name == "__version__":
            found = import_module("importlib.metadata").version("topdown")
        else:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}", name=name, obj=import_module(__name__)
            )
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(set(__all__) | {name for name in globals() if name.startswith("__")})
