"""The smallest budget for stated targets, for the table and the plan of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from topdown.confidential.measure import measurable
from topdown.config import RunConfig
from topdown.errors import ConfigError
from topdown.machine.progress import Silent
from topdown.pipeline.input.reading import read_input
from topdown.pipeline.memory_needed import weigh
from topdown.planning.budget import SmallestBudget, smallest_budget
from topdown.privacy.mechanism import MECHANISMS
from topdown.wording import shown


def smallest(config: RunConfig, targets: Sequence[str], areas: Sequence[Path] = ()) -> SmallestBudget:
    """The smallest budget with which ``targets`` hold for the units of ``config``'s table, and for ``areas``, one file
    for each kind, by the queries that its [privacy] names. The configuration may lack a budget. No count is used.

    Raises `ConfigError` for a preset, whose shares are given, and as `smallest_budget` does.
    """
    if config.privacy.preset is not None:
        raise ConfigError(
            f"privacy.preset = {shown(config.privacy.preset)} has its own shares; name its attributes in [schema] and "
            "the queries to choose from in [privacy.shares]"
        )
    config = _with_a_budget(config)
    geography, counts = read_input(config, before_counts=partial(weigh, config, Silent()))
    schema = counts.schema
    del counts
    plan = measurable(config.plan(), geography.levels, schema)
    return smallest_budget(plan, geography, targets, schema, areas=areas)


def _with_a_budget(config: RunConfig) -> RunConfig:
    """``config`` with a budget of 1 where it has none yet."""
    given = config.privacy
    if given.mechanism not in MECHANISMS or given.epsilon is not None or given.rho is not None:
        return config
    budget = {MECHANISMS[given.mechanism].currency: "1"}
    return config.model_copy(update={"privacy": given.model_copy(update=budget)})
