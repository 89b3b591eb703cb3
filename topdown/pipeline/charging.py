"""Reserves the budget of a release in its ledger before its noise is drawn, and confirms it afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from topdown.config import RunConfig
from topdown.config.linked_settings import LinkedConfig
from topdown.errors import BudgetError
from topdown.measurements.journal import Journal
from topdown.privacy.accounting import Event
from topdown.privacy.ledger import Ledger
from topdown.release.manifest import LedgerEntry
from topdown.wording import shown_path


class Charged(NamedTuple):
    """The account that is charged: the ledger's ``path``, and the name of the data set in it."""

    path: Path
    dataset: str


def charged_to(config: RunConfig | LinkedConfig) -> Charged | None:
    """The account that ``config``'s release is charged to; None where there is no ledger."""
    return None if config.ledger is None else Charged(config.folder / config.ledger.path, config.ledger.dataset)


def reserve(
    charged: Charged | None, journal: Journal, events: Iterable[Event], *, begun: bool, title: str = ""
) -> None:
    """Reserve a release's budget in the ledger under its ``title``, if there is a ledger. Raises `BudgetError` if too
    little is left.

    ``begun``: whether the journal has a record of the noise. If it has none although the ledger confirms that noise was
    drawn, the record was lost; drawing other noise would be a second release for the budget of one.
    """
    if charged is None:
        return
    ledger = Ledger(charged.path)
    release = journal.release_name()
    account = ledger.reserve(charged.dataset, release, events, title=title)
    if not begun and release in account.confirmed:
        raise BudgetError(
            f"{shown_path(journal.folder)}: the ledger {shown_path(ledger.path)} says that release {release} drew its "
            "noise, and its record is not here; restore it from a copy: a new release in another --output spends its "
            "budget anew"
        )


def require_left(charged: Charged | None, journal: Journal, events: Iterable[Event]) -> None:
    """Raise the `BudgetError` that `reserve` would raise, without reserving anything."""
    if charged is not None:
        # A release that was not begun has no name yet, and none is created here.
        name = journal.release_name() if journal.has_secret() else "not begun"
        Ledger(charged.path).require_left(charged.dataset, name, events)


def confirm(charged: Charged | None, journal: Journal, measured: str) -> LedgerEntry | None:
    """Record the code of the measurements in the ledger, if there is one. Raises `BudgetError` for another code."""
    if charged is None:
        return None
    release = journal.release_name()
    record = Ledger(charged.path).confirm(charged.dataset, release, measured)
    return LedgerEntry(charged.dataset, release, record)
