"""The command line of the ledger: init, show, verify. The ledger is imported inside them, see `app`."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topdown.machine.streams import OUTLIVES_OUTPUT
from topdown.machine.terminal import Terminal

if TYPE_CHECKING:
    from topdown.privacy.ledger import Account

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Account for the privacy budgets of confidential data sets.\n\n"
        "A run whose file has a section \\[ledger] (path, dataset) reserves its budget here before it draws noise, and "
        "is refused with exit code 5 if the data set's total would be exceeded."
    ),
)

LedgerPath = Annotated[Path, typer.Argument(metavar="PATH", help="The ledger, an SQLite file.")]


@app.command()
def init(
    path: LedgerPath,
    dataset: Annotated[str, typer.Option("--dataset", help="The name of the confidential data set.")],
    total: Annotated[
        str, typer.Option("--total", help="The most that may ever be spent on it, such as 4, 2.5 or 10/3.")
    ],
    currency: Annotated[
        str,
        typer.Option("--currency", help="epsilon (pure), or rho (zero-concentrated, for all mechanisms)."),
    ] = "epsilon",
    unit: Annotated[str, typer.Option("--unit", help="What is protected, as in privacy.unit.")] = "person",
    neighbours: Annotated[
        str, typer.Option("--neighbours", help="add-remove or substitute, as in privacy.neighbours.")
    ] = "add-remove",
) -> object:
    """Open an account for a data set. Creates PATH if it does not exist.

    To correct an account, open it again; this is possible until a release has been charged to it.
    """
    from topdown.privacy.ledger import Ledger

    account = Ledger(path).open_account(dataset, total, currency, unit=unit, neighbours=neighbours)
    Terminal().say(_in_words(account))
    return OUTLIVES_OUTPUT


@app.command()
def show(path: LedgerPath) -> None:
    """Print, for every data set, its total, what was spent, by which releases, and what is left."""
    from topdown.privacy.ledger import Ledger

    ledger = Ledger(path)
    out = Terminal()
    for dataset in ledger.datasets():
        account = ledger.account(dataset)
        out.say(_in_words(account))
        if account.releases:
            out.table(account.dataset, _headings(account), list(_rows(account)))


@app.command()
def verify(
    path: LedgerPath,
    head: Annotated[
        str | None,
        typer.Option(
            "--head", help="A hash that must be in the ledger, such as ledger.record in a release's manifest."
        ),
    ] = None,
) -> None:
    """Check that no record was changed, removed or added. With --head: also that none is missing up to that hash."""
    from topdown.privacy.ledger import Ledger

    last = Ledger(path).verify(head)
    Terminal().say(f"ok        the chain of hashes is valid; its last hash is {last}")


def _in_words(account: Account) -> str:
    return (
        f"{account.dataset}: {_number(account.spent)} of {_number(account.total)} {account.currency} is spent, "
        f"{_number(account.left)} is left, for one {account.unit} under {account.neighbours}"
    )


def _headings(account: Account) -> list[tuple[str, bool]]:
    return [
        ("release", False),
        ("reserved", False),
        ("state", False),
        (account.currency, True),
        ("spent", True),
        ("title", False),
    ]


def _rows(account: Account) -> Iterator[tuple[str, ...]]:
    spent = Fraction(0)
    for release in account.releases:
        cost = account.cost(release)
        spent += cost
        state = "confirmed" if release.release in account.confirmed else "reserved"
        title = str(release.body.get("title", ""))
        yield release.release, str(release.body.get("at", "")), state, _number(cost), _number(spent), title


def _number(value: Fraction) -> str:
    """As a decimal where that is exact and short, otherwise as a fraction: a budget is never shown rounded."""
    from topdown.noise.exact_numbers import in_decimals

    return in_decimals(value, longest=20)
