"""Writes a plan as the section [privacy] of a TOML file."""

from __future__ import annotations

import json
import re
from fractions import Fraction

from topdown.noise.exact_numbers import in_decimals
from topdown.planning.budget import SmallestBudget
from topdown.privacy.plan import MEASURE, Plan
from topdown.wording import escaped_json
from topdown.workload import DETAILED


def as_toml(found: SmallestBudget) -> str:
    """The section [privacy] of a file for ``found``, with its errors in comments."""
    plan = found.plan
    lines = [f"# {one}: {margin:.4g} with this plan" for one, margin in found.targets]
    lines.append(f"# {found.words}")
    if found.undetermined:
        lines.append(
            f"# this plan does not determine every cell at level {', '.join(found.undetermined)}: a release shares "
            "them out equally below its parent's; state a target there if its cells matter"
        )
    root = next(level for (level, _), _ in plan.shares.items_) if plan.shares is not None else None
    if root is not None and not (plan.queries(root) or plan.invariants or plan.exact_queries):
        lines.append(
            f"# level {root} has no share of the budget: take projection.method = "
            '"gls-top-down", which uses what is measured below it'
        )
    return "\n".join([*lines, "", *plan_lines(plan)]) + "\n"


def plan_lines(plan: Plan) -> list[str]:
    """The section [privacy] of a file for ``plan``."""
    currency = "epsilon" if plan.is_pure else "rho"
    lines = ["[privacy]", f'mechanism = "{plan.mechanism}"', f'{currency} = "{in_decimals(plan.total)}"']
    if plan.delta is not None and not plan.is_pure:
        lines.append(f"delta = {plan.delta!r}")
    lines += [f'neighbours = "{plan.neighbours}"', f"unit = {text(plan.unit)}"]
    if plan.noise.on_grid:
        lines.append(f"grid_bits = {plan.grid_bits}")
    if plan.only_child != MEASURE:
        lines.append(f'only_child = "{plan.only_child}"')
    return [*lines, *_invariants(plan), "", *_shares(plan)]


def _invariants(plan: Plan) -> list[str]:
    if not plan.exact_queries:
        return [f"invariants = [{', '.join(map(text, plan.invariants))}]"] if plan.invariants else []
    by_level: dict[str, list[str]] = {level: [DETAILED] for level in plan.invariants}
    for level, query in plan.exact_queries:
        by_level.setdefault(level, []).append(query)
    return ["", "[privacy.invariants]"] + [
        f"{key(level)} = [{', '.join(map(text, queries))}]" for level, queries in by_level.items()
    ]


def _shares(plan: Plan) -> list[str]:
    shares: dict[str, dict[str, Fraction]] = {}
    for (level, query), share in () if plan.shares is None else plan.shares.items_:
        shares.setdefault(level, {})[query] = share
    lines = ["[privacy.shares]"]
    for level, queries in shares.items():
        inner = ", ".join(f'{key(query)} = "{share}"' for query, share in queries.items())
        whole = queries.get(DETAILED) if len(queries) == 1 else None
        lines.append(f"{key(level)} = " + (f"{{ {inner} }}" if whole is None else f'"{whole}"'))
    return lines


def key(name: str) -> str:
    """``name`` as a key of TOML, quoted where necessary."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else text(name)


def text(name: str) -> str:
    """``name`` as a string of TOML."""
    return escaped_json(json.dumps(name, ensure_ascii=False))
