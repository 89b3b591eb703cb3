"""The ledger: what was spent of the budget of every confidential data set.

One SQLite file holds records that are only appended, each with the hash of the one before it. A release reserves its
budget before the first draw and confirms it with the hash of its measurements; a reservation counts as spent. SQLite's
write lock puts releases that are made at the same time one after the other, so that they cannot spend the same budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from topdown.errors import BudgetError, suggest
from topdown.neighbours import COUNTS_MOVED
from topdown.privacy.accounting import (
    Event,
    ExactEvent,
    PureAccountant,
    ZCDPAccountant,
    event_from_dict,
    event_to_dict,
    require_events,
)
from topdown.privacy.budget_numbers import Number, exact_number, positive_number
from topdown.privacy.ledger_file import LedgerRecord, all_removed, errors_in_words, read_records, transaction
from topdown.wording import figure, shown, shown_path, unquoted

ACCOUNTANTS = {"epsilon": PureAccountant, "rho": ZCDPAccountant}
"""The currencies of a data set's total, and the accountant of each."""


@dataclass(frozen=True)
class Account:
    """A data set's budget: its ``currency`` ("epsilon" or "rho"), ``total`` and what its ``releases`` spent.

    ``unit`` and ``neighbours``: what the budget protects. ``releases``: the reservations, in order. ``confirmed``: the
    names of the releases that drew their noise.
    """

    dataset: str
    currency: str
    total: Fraction
    spent: Fraction
    unit: str
    neighbours: str
    releases: tuple[LedgerRecord, ...] = field(repr=False)
    confirmed: frozenset[str] = field(repr=False)

    @property
    def left(self) -> Fraction:
        """The budget that is left."""
        return self.total - self.spent

    def cost(self, release: LedgerRecord) -> Fraction:
        """What one of ``releases`` spent."""
        return _cost(self.currency, [release])


class Ledger:
    """The ledger in the SQLite file at ``path`` (write-ahead log, every commit synced).

    Every call checks the chain of hashes first and raises `BudgetError` where it does not hold.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def open_account(
        self,
        dataset: str,
        total: Number,
        currency: str = "epsilon",
        *,
        unit: str = "person",
        neighbours: str = "add-remove",
    ) -> Account:
        """Begin to account for ``dataset``, of which at most ``total`` may be spent; makes the file where needed.

        As long as no release has reserved anything, an account may be opened again, which corrects it; both records
        stay in the ledger.

        Raises `BudgetError` for a data set whose account was used, or is the same already, a total that is not above 0,
        an unknown currency or kind of neighbours, a name or unit that is empty.
        """
        allowed = positive_number(total, "total")
        if currency not in ACCOUNTANTS:
            raise BudgetError(f"unknown currency {shown(currency)}; {suggest(currency, list(ACCOUNTANTS))}")
        if neighbours not in COUNTS_MOVED:
            raise BudgetError(f"unknown neighbours {shown(neighbours)}; {suggest(neighbours, list(COUNTS_MOVED))}")
        for what, name in (("dataset", dataset), ("unit", unit)):
            if not isinstance(name, str) or not name.strip():
                raise BudgetError(f"{what} is {shown(name)}; give it a name")
        body = {"total": str(allowed), "currency": currency, "unit": unit.strip(), "neighbours": neighbours}
        with transaction(self.path, create=True) as ledger:
            before = [record for record in ledger.records if record.dataset == dataset]
            if any(record.kind != "open" for record in before):
                raise BudgetError(
                    f"{shown_path(self.path)}: data set {shown(dataset)} has an account already, which "
                    "a release has used; its total stays as it is"
                )
            if before and body.items() <= before[-1].body.items():
                raise BudgetError(
                    f"{shown_path(self.path)}: data set {shown(dataset)} has this account already; nothing was changed"
                )
            ledger.append(dataset, "open", f"correction {len(before)}" if before else "", body)
        return self.account(dataset)

    def reserve(self, dataset: str, release: str, events: Iterable[Event], *, title: str = "") -> Account:
        """Set aside what ``events`` cost for the release called ``release``, before any of its noise is drawn.

        ``title``: of the release, for readers.

        A release reserves only once, however often it is started again. Raises `BudgetError` where the total would be
        passed, where the data set has no account or another unit or neighbours, for Gaussian noise in an account of
        pure epsilon, for a release that has reserved something else before, for one without a name, and for an unknown
        event.
        """
        if not release:
            raise BudgetError(f"{shown_path(self.path)}: a release without a name cannot reserve a budget; give it one")
        measured = require_events(events)
        with transaction(self.path) as ledger:
            account, after = self._would_be(ledger.records, dataset, release, measured)
            if after is None:
                return account
            ledger.append(
                dataset,
                "reserve",
                release,
                {
                    "events": [event_to_dict(event) for event in measured],
                    "after": str(after),
                    **({"title": title} if title else {}),
                },
            )
        return self.account(dataset)

    def require_left(self, dataset: str, release: str, events: Iterable[Event]) -> None:
        """Refuse what `reserve` would refuse, without reserving anything."""
        measured = require_events(events)
        with errors_in_words(self.path):
            self._would_be(read_records(self.path), dataset, release, measured)

    def confirm(self, dataset: str, release: str, measurements: str) -> str:
        """Record that ``release`` drew its noise; ``measurements`` is the SHA-256 of what it measured.

        Returns the hash of that record, always the same one. Kept elsewhere, it shows later that no record up to this
        one was removed. Raises `BudgetError` for a release without a reservation, or one that was confirmed with other
        measurements.
        """
        with transaction(self.path) as ledger:
            account = self._account(ledger.records, dataset)
            if all(record.release != release for record in account.releases):
                raise BudgetError(
                    f"{shown_path(self.path)}: release {unquoted(release)} of data set {shown(dataset)} has reserved "
                    "nothing"
                )
            for record in ledger.records:
                if (record.dataset, record.kind, record.release) == (dataset, "confirm", release):
                    if record.body["measurements"] != measurements:
                        raise BudgetError(
                            f"{shown_path(self.path)}: release {unquoted(release)} was confirmed with other "
                            "measurements; only those may be released: restore them, or give another --output "
                            "directory, which spends its budget anew"
                        )
                    return record.hash
            return ledger.append(dataset, "confirm", release, {"measurements": measurements}).hash

    def account(self, dataset: str) -> Account:
        """The account of ``dataset``. Raises `BudgetError` where it has none."""
        with errors_in_words(self.path):
            return self._account(read_records(self.path), dataset)

    def datasets(self) -> tuple[str, ...]:
        """The data sets that have an account, in the order in which they were opened."""
        return tuple(dict.fromkeys(record.dataset for record in read_records(self.path) if record.kind == "open"))

    def verify(self, head: str | None = None) -> str:
        """Check the chain of hashes and return its last one; with ``head``, also that this hash is in the chain.

        Raises `BudgetError` naming the first record that was changed, removed or put in, and for a ledger without
        records. A chain from which the last records were removed is still valid: keep the last hash elsewhere, such as
        the one in a release's manifest, and give it as ``head``. A rewritten chain is detected by ``head`` alone, or
        where what it says cannot be read.
        """
        hashes = [record.hash for record in read_records(self.path)]
        if head is not None and head not in hashes:
            raise BudgetError(
                f"{shown_path(self.path)}: the hash {unquoted(head, 64)} is not in the ledger: records were cut off or "
                "rewritten; restore it from a copy"
            )
        if not hashes:
            raise all_removed(self.path)
        for dataset in self.datasets():
            self.account(dataset)  # what the records say can be read
        return hashes[-1]

    def require_record(self, record: str, manifest: Path) -> None:
        """Raises `BudgetError` unless the ledger holds the ``record`` that the ``manifest`` of a release names.

        Where an older copy of the ledger was restored the record is missing, and so is everything that was spent since.
        """
        if all(known.hash != record for known in read_records(self.path)):
            raise BudgetError(
                f"{shown_path(self.path)}: does not hold the record {unquoted(record, 64)} that {shown_path(manifest)} "
                "names: it is another ledger, or an older copy of it, which lacks what was spent since; restore the "
                "newest copy before any other run"
            )

    def _would_be(
        self, records: Sequence[LedgerRecord], dataset: str, release: str, measured: Sequence[Event]
    ) -> tuple[Account, Fraction | None]:
        """The account, and what would be spent with the release called ``release``; None where it has reserved
        before.
        """
        account = self._account(records, dataset)
        earlier = next((record for record in account.releases if record.release == release), None)
        if earlier is not None:
            if _charges(account.currency, _events([earlier])) != _charges(account.currency, measured):
                raise BudgetError(
                    f"{shown_path(self.path)}: release {unquoted(release)} has reserved another budget before; a "
                    "changed plan is another release: give it another --output directory"
                )
            return account, None
        self._require_addable(account, measured)
        after = ACCOUNTANTS[account.currency](_events(account.releases)).would_be(measured)
        if after > account.total:
            raise BudgetError(
                f"{shown_path(self.path)}: the release would bring {account.currency} of data set {shown(dataset)} to "
                f"{figure(str(after))}, beyond the total of {figure(str(account.total))}; {figure(str(account.left))} "
                "is left. Nothing was drawn: lower this release's budget"
            )
        return account, after

    def _account(self, records: Sequence[LedgerRecord], dataset: str) -> Account:
        own = [record for record in records if record.dataset == dataset]
        # The last one counts; nothing was spent before it (see `open_account`).
        opened = next((record.body for record in reversed(own) if record.kind == "open"), None)
        if opened is None:
            known = sorted({record.dataset for record in records})
            raise BudgetError(
                f"{shown_path(self.path)}: data set {shown(dataset)} has no account; {suggest(dataset, known)}. Open "
                "one with 'topdown ledger init'"
            )
        releases = tuple(record for record in own if record.kind == "reserve")
        return Account(
            dataset=dataset,
            currency=opened["currency"],
            total=exact_number(opened["total"], "the total"),
            spent=_cost(opened["currency"], releases),
            unit=opened["unit"],
            neighbours=opened["neighbours"],
            releases=releases,
            confirmed=frozenset(record.release for record in own if record.kind == "confirm"),
        )

    def _require_addable(self, account: Account, events: Iterable[Event]) -> None:
        """Refuse events whose budget cannot be added to the account's."""
        for event in events:
            if (event.unit, event.neighbours) != (account.unit, account.neighbours):
                raise BudgetError(
                    f"{shown_path(self.path)}: data set {shown(account.dataset)} is accounted for one "
                    f"{unquoted(account.unit)} under {shown(account.neighbours)}, and the release protects one "
                    f"{unquoted(event.unit)} under {shown(event.neighbours)}; their budgets do not add"
                )
            if account.currency == "epsilon" and not isinstance(event, ExactEvent) and event.epsilon is None:
                raise BudgetError(
                    f"{shown_path(self.path)}: data set {shown(account.dataset)} is accounted in pure epsilon, which "
                    f"{unquoted(event.mechanism)} noise does not have; take the mechanism 'geometric', or account for "
                    "the data set in rho"
                )


def _charges(currency: str, events: Iterable[Event]) -> list[tuple[object, ...]]:
    """The charges of ``events``, in a form in which records of older versions can be compared with new events."""
    return [
        (event.level, event.query, event.unit, event.neighbours)
        + (getattr(event, "columns", ()), getattr(event, "input", ""))
        + (("exact",) if isinstance(event, ExactEvent) else ("noisy", getattr(event, currency)))
        for event in events
    ]


def _cost(currency: str, releases: Iterable[LedgerRecord]) -> Fraction:
    return ACCOUNTANTS[currency](_events(releases)).total


def _events(releases: Iterable[LedgerRecord]) -> list[Event]:
    return [event_from_dict(event) for record in releases for event in record.body["events"]]
