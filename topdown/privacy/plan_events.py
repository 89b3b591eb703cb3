"""What a level of a plan does to the privacy of a unit, as events for an accountant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topdown.privacy.accounting import Event, ExactEvent, PureEvent
from topdown.privacy.bounds import NONE
from topdown.workload import DETAILED

if TYPE_CHECKING:
    from topdown.privacy.plan import Plan


def level_events(plan: Plan, level: str) -> list[Event]:
    """One event for every query that a level is asked, in the plan's order. The plan has its shares."""
    labels: dict[str, Any] = {"level": level, "unit": plan.unit, "neighbours": plan.neighbours}
    if level in plan.invariants:
        return [ExactEvent(query=DETAILED, **labels)]
    events: list[Event] = []
    for query in plan.queries(level):
        if plan.is_exact(level, query):
            events.append(ExactEvent(query=query, **labels))
            continue
        bounded = plan.bounds.at(level)
        named = plan.mechanism if bounded.kind == NONE else f"{bounded.kind} {plan.mechanism}"
        if bounded.conditioned:
            charge = plan.charged(level, query)
            events.append(PureEvent(query=query, mechanism=named, epsilon=charge, **labels))
            continue
        parameter, bits = plan.parameter(level, query), plan.released_grid_bits
        moved = plan.sensitivity, plan.sensitivity_squared
        events.append(plan.noise.event(parameter, *moved, query=query, mechanism=named, grid_bits=bits, **labels))
    return events
