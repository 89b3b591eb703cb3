"""Whether a directory holds its release already, whole, and with what its noise followed from."""

from __future__ import annotations

from pathlib import Path

from topdown.config import RunConfig
from topdown.errors import ConfigError
from topdown.privacy.ledger import Ledger
from topdown.release.manifest import MANIFEST
from topdown.release.verify import verify_files
from topdown.wording import reason, shown_path


def released(config: RunConfig, public: Path, *, recorded: bool) -> bool:
    """Whether ``public`` holds this release already, after making sure that it is whole.

    Raises `ConfigError` where the noise behind it is not ``recorded``, `DataError` naming a file that is not what was
    written, `BudgetError` where the ledger lacks the record that the manifest names.
    """
    if _exists(public) and not recorded:
        raise ConfigError(
            f"{shown_path(public)} exists, and the record of the noise behind it does not; give another --output "
            "directory"
        )
    if not _exists(public) or _is_empty(public):
        return False
    again = f"move {shown_path(public)} away and run again: the same release is made of the same noise"
    entry = verify_files(public, remedy=again)["ledger"]
    if config.ledger is not None and entry is not None:
        Ledger(config.folder / config.ledger.path).require_record(str(entry["record"]), public / MANIFEST)
    return True


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:
        return False  # what is wrong with it is for whoever reads it to say


def _exists(public: Path) -> bool:
    try:
        return public.exists()
    except OSError as error:
        raise _unreadable(public, error) from None


def _unreadable(public: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{shown_path(public)}: cannot be read: {reason(error)}; correct the permissions, or give another --output"
    )
