"""Privacy: the plan of a budget, the events of a release, accounting and conversions."""

from __future__ import annotations

from topdown.privacy import sanitizers, sensitivity
from topdown.privacy.accounting import (
    ApproxDP,
    Event,
    ExactEvent,
    GaussianEvent,
    LaplaceEvent,
    PureAccountant,
    PureEvent,
    ZCDPAccountant,
    event_from_dict,
    event_to_dict,
    parallel,
)
from topdown.privacy.composition import (
    ComposedAccountant,
    advanced_composition,
    optimal_delta,
    optimal_epsilon,
)
from topdown.privacy.conversions import (
    analytic_gaussian_sigma,
    classical_gaussian_sigma,
    conservative_rho,
    epsilon_to_zcdp,
    gaussian_delta,
    gaussian_epsilon,
    group_delta,
    group_epsilon,
    group_rho,
    pure_to_zcdp,
    zcdp_divergence,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from topdown.privacy.guarantees import Guarantee, LevelGuarantee, Loss, guarantee
from topdown.privacy.plan import Plan
from topdown.privacy.shares import Shares

__all__ = [
    "ApproxDP",
    "ComposedAccountant",
    "Event",
    "ExactEvent",
    "GaussianEvent",
    "Guarantee",
    "LaplaceEvent",
    "LevelGuarantee",
    "Loss",
    "Plan",
    "PureAccountant",
    "PureEvent",
    "Shares",
    "ZCDPAccountant",
    "advanced_composition",
    "analytic_gaussian_sigma",
    "classical_gaussian_sigma",
    "conservative_rho",
    "epsilon_to_zcdp",
    "event_from_dict",
    "event_to_dict",
    "gaussian_delta",
    "gaussian_epsilon",
    "group_delta",
    "group_epsilon",
    "group_rho",
    "guarantee",
    "optimal_delta",
    "optimal_epsilon",
    "parallel",
    "pure_to_zcdp",
    "sanitizers",
    "sensitivity",
    "zcdp_divergence",
    "zcdp_to_delta",
    "zcdp_to_epsilon",
]
