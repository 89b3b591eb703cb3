"""What a release costs is set aside in its ledger before its noise is drawn, and confirmed when it was."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from topdown.errors import BudgetError
from topdown.measurements.journal import Journal
from topdown.privacy.accounting import Event
from topdown.privacy.ledger import Ledger
from topdown.release.manifest import LedgerEntry
from topdown.wording import shown_path


class Charged(NamedTuple):
    """Where a budget is accounted for: the ledger's ``path``, and the name of the data set in it."""

    path: Path
    dataset: str


def reserve(
    charged: Charged | None, journal: Journal, events: Iterable[Event], *, begun: bool, title: str = ""
) -> None:
    """Set a release's budget aside in the ledger under its ``title``, where there is one. Raises `BudgetError` if too
    little is left.

    ``begun``: whether there is a record of what its noise follows from. If there is none although the ledger knows that
    it was drawn, it was lost, and drawing other noise would be a second release on the budget of one.
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
    """Refuse what `reserve` would refuse, where there is a ledger, and reserve nothing. Raises `BudgetError`."""
    if charged is not None:
        # A release that was not begun has no name yet, and none is made for it here.
        name = journal.release_name() if journal.has_secret() else "not begun"
        Ledger(charged.path).require_left(charged.dataset, name, events)


def confirm(charged: Charged | None, journal: Journal, measured: str) -> LedgerEntry | None:
    """Tell the ledger, where there is one, the code of what was measured. Raises `BudgetError` for another code."""
    if charged is None:
        return None
    release = journal.release_name()
    record = Ledger(charged.path).confirm(charged.dataset, release, measured)
    return LedgerEntry(charged.dataset, release, record)
