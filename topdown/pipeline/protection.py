"""What a plan does not protect: refused where nobody asked for it, and said first where somebody did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from topdown.config import RunConfig, StudyConfig
from topdown.errors import BudgetError
from topdown.privacy import strength
from topdown.privacy.plan import Plan
from topdown.wording import shown


def require_protection(config: RunConfig, plan: Plan, levels: Sequence[str], gains: Mapping[str, Fraction]) -> None:
    """Refuse a release that would publish true counts for noisy ones, unless that is what is asked for."""
    bare = strength.unprotected(plan, levels, gains)
    if bare and not config.privacy.accept_no_protection and not isinstance(config, StudyConfig):
        level, part = next(iter(bare.items()))
        raise BudgetError(
            f"level {shown(level)}: with its share of the budget the noise is 0 for {part:.4%} of the counts, so that "
            "true counts would be published: take a smaller budget, or a smaller share of it; where nothing is to be "
            "protected, privacy.invariants publishes a level exactly and says so, and privacy.accept_no_protection = "
            "true releases this, which the manifest then states first"
        )


def notices_of(config: RunConfig, plan: Plan, levels: Sequence[str], gains: Mapping[str, Fraction]) -> tuple[str, ...]:
    """What whoever reads the release has to know before anything else."""
    found = strength.in_words(plan, levels, gains)
    total = plan.guarantee(levels).total
    epsilon = total.epsilon if plan.is_pure else None if total.approx is None else total.approx.epsilon
    large = None if epsilon is None else strength.large_budget(plan, float(epsilon))
    if large is not None:
        found.append(f"{large}.")
    if config.input.assume_disjoint:
        found.append(
            "That every record is counted in one cell and one unit alone is assumed (input.assume_disjoint): the table "
            "was not searched for cells or units that are sums of others, and where there are such, the budget is more "
            "than what is stated here."
        )
    return tuple(found)
