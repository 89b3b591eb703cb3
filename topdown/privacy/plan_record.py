"""A plan as JSON-able values, for a manifest, and back."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from topdown.neighbours import COUNTS_MOVED
from topdown.privacy.bounds import CALIBRATED, NONE, UNCORRECTED
from topdown.workload import DETAILED

if TYPE_CHECKING:
    from topdown.privacy.plan import Plan


def record_of(plan: Plan) -> dict[str, Any]:
    """``plan`` as JSON-able values: exact fractions as strings such as "1/5".

    Every budget is the one that is truly charged. Under an uncorrected scale that is more than the plan's epsilon,
    which `arguments_of` computes from the scales and shares.
    """
    shares = plan.shares
    currency, parameter = plan.noise.currency, plan.noise.parameter
    levels = []
    for (level, query), share in () if shares is None else shares.items_:
        entry: dict[str, Any] = {"level": level, "query": query, "share": str(share)}
        entry[currency] = str(plan.charged(level, query))
        bounded = plan.bounds.at(level)
        if bounded.kind != NONE:
            entry |= {"bounds": bounded.kind, "upper": bounded.upper, "calibration": bounded.calibration}
            entry["charged"] = str(plan.charged(level, query))
            if bounded.within is not None:
                entry["within"] = [list(piece) for piece in bounded.within]
        if share:
            entry[parameter] = str(plan.parameter(level, query))
        levels.append(entry)
    return {
        "mechanism": plan.mechanism,
        "unit": plan.unit,
        "neighbours": plan.neighbours,
        "epsilon": None if plan.epsilon is None else str(plan.charged_total),
        "rho": None if plan.rho is None else str(plan.rho),
        "delta": plan.delta,
        "grid_bits": plan.released_grid_bits,
        "shares": None if shares is None else levels,
        "invariants": list(plan.invariants) if not plan.exact_queries else _exact_by_level(plan),
        "only_child": plan.only_child,
    }


def _exact_by_level(plan: Plan) -> dict[str, list[str]]:
    exact = {level: [DETAILED] for level in plan.invariants}
    for level, query in plan.exact_queries:
        exact.setdefault(level, []).append(query)
    return exact


def arguments_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the plan that was written as ``record``.

    Raises `KeyError` or `TypeError` where it is no record of a plan.
    """
    shares: dict[str, dict[str, str]] = {}
    bounds: dict[str, str] = {}
    upper: dict[str, int] = {}
    within: dict[str, list[tuple[int | None, int | None]]] = {}
    calibration = CALIBRATED
    for entry in record["shares"] or ():
        level = str(entry["level"])
        shares.setdefault(level, {})[str(entry["query"])] = str(entry["share"])
        if "bounds" in entry:
            bounds[level] = str(entry["bounds"])
            # Clipping does not change the scale, so that its levels do not show the calibration.
            calibration = str(entry["calibration"]) if entry["calibration"] != CALIBRATED else calibration
            if entry["upper"] is not None:
                upper[level] = int(entry["upper"])
            if entry.get("within") is not None:
                within[level] = [tuple(piece) for piece in entry["within"]]
    return {
        "mechanism": str(record["mechanism"]),
        "epsilon": _asked_for(record),
        "rho": record["rho"],
        "shares": None if record["shares"] is None else shares,
        "neighbours": str(record["neighbours"]),
        "invariants": record["invariants"],
        "delta": record["delta"] if record["rho"] is not None else None,
        "unit": str(record["unit"]),
        "grid_bits": int(record["grid_bits"]),
        "bounds": bounds or NONE,
        "upper": upper or None,
        "within": within or None,
        "calibration": calibration,
        "only_child": str(record.get("only_child", "measure")),  # since schema version 1.5
    }


def _asked_for(record: Mapping[str, Any]) -> Any:
    """The epsilon that the plan was given. Where a level's scale is uncorrected it is less than what is charged: the
    one of which the level's share gives that scale without bounds.
    """
    for entry in record["shares"] or ():
        share = Fraction(str(entry["share"]))
        if share and entry.get("calibration") == UNCORRECTED:
            return str(COUNTS_MOVED[str(record["neighbours"])] / Fraction(str(entry["scale"])) / share)
    return record["epsilon"]
