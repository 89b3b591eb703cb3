"""Checks whether a directory already holds its complete release, made from the same noise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topdown.config import DerivationConfig, RunConfig
from topdown.config.linked_settings import LinkedConfig
from topdown.errors import ConfigError
from topdown.measurements.journal import BegunRelease, Journal
from topdown.pipeline.charging import charged_to
from topdown.privacy.ledger import Ledger
from topdown.release.linked_release import verify_linked
from topdown.release.manifest import MALFORMED, manifest_at
from topdown.release.places import LINK, MANIFEST
from topdown.release.verified import verify_files
from topdown.wording import reason, shown_path

_ELSEWHERE = {"output.directory", "output.exports", "output.page", "output.style", "output.microdata",
              "output.microdata_order"}  # fmt: skip
"""Settings in no fingerprint of what is written beside public/."""


def released(config: RunConfig | LinkedConfig, public: Path, journal: Journal, begun: BegunRelease | None) -> bool:
    """Whether ``public`` already holds this release, of one table or of two, complete; its files are verified.

    Raises `ConfigError` where it was made from other noise than ``journal`` records, or written in other forms than
    ``config`` asks for, `DataError` naming a file that differs from the one that was written, `BudgetError` where the
    ledger lacks the record that the manifest names.
    """
    if not _exists(public) or (begun is not None and _is_empty(public)):
        return False
    # This comes first: no other noise may be drawn if a file has to be written again.
    require_noise(public, named_noise(public), journal, begun)
    again = f"move {shown_path(public)} away and run again: the same release is made of the same noise"
    if isinstance(config, RunConfig):
        tables = [(config, public, verify_files(public, remedy=again))]
    else:
        verify_linked(public)
        folders = {name: public / name for name in config.universe.names}
        tables = [(config.of_table(name), own, manifest_at(own / MANIFEST)) for name, own in folders.items()]
    charged = charged_to(config)
    for own, folder, manifest in tables:
        if charged is not None and manifest["ledger"] is not None:
            Ledger(charged.path).require_record(str(manifest["ledger"]["record"]), folder / MANIFEST)
        require_same_forms(own, manifest, public)
    return True


def require_same_forms(config: DerivationConfig, manifest: Mapping[str, Any], public: Path) -> None:
    """Refuse a complete release in ``public`` that was written with other settings of its files than those of
    ``config``, which are in no fingerprint. Raises `ConfigError` naming one."""
    said, wanted = manifest["configuration"], config.resolved()
    free = {name for names in config.not_in_fingerprint.values() for name in names}
    settings = [name for name in free - _ELSEWHERE if name.startswith("output.")]
    settings += [f"catalogue.{name}" for name in wanted["catalogue"]]
    for section, name in sorted(setting.split(".") for setting in settings):
        before = said.get(section)
        if isinstance(before, dict) and name in before and before[name] != wanted[section][name]:
            raise ConfigError(
                f"{shown_path(public)} holds this release, complete, which was written with another {section}.{name}; "
                "move it away and run again: the same numbers are written as asked for now"
            )


def require_noise(path: Path, noise: object, journal: Journal, begun: BegunRelease | None) -> None:
    """Refuse, before anything is drawn, a ``path`` that was published from another ``noise`` than ``journal`` records
    and has ``begun``, or from a later state of it, as when an older copy of the folder was restored.

    ``noise``: its name as ``path`` states it, None where it states none. Raises `ConfigError`.
    """
    if begun is None or begun.measured is None or (noise is not None and noise != journal.release_name()):
        raise _other_noise(path, journal)


def require_no_other(public: Path, journal: Journal) -> None:
    """As `require_noise`, for what is made of ``public`` alone: refuses only if ``journal`` has the secret of other
    noise.

    Raises `ConfigError`.
    """
    noise = named_noise(public)
    if noise is not None and journal.has_secret() and noise != journal.release_name():
        raise _other_noise(public, journal)


def named_noise(public: Path) -> object:
    """The name of the noise from which the release in ``public``, of one table or of two, was made; None where it
    states none, or cannot be read.
    """
    try:
        stated = LINK if (public / LINK).is_file() else MANIFEST
        return manifest_at(public / stated).get("noise")  # since version 1.6
    except (OSError, *MALFORMED):
        return None  # what is wrong with it is for whoever reads it to say


def _other_noise(path: Path, journal: Journal) -> ConfigError:
    return ConfigError(
        f"{shown_path(path)} exists, and the record of the noise behind it is not in {shown_path(journal.folder)}, or "
        "an older copy of it is; restore the newest copy of that folder, or give another --output directory, which "
        "spends its budget anew"
    )


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:
        return False  # what is wrong with it is for whoever reads it to say


def _exists(public: Path) -> bool:
    try:
        return public.exists()
    except OSError as error:
        raise ConfigError(
            f"{shown_path(public)}: cannot be read: {reason(error)}; correct the permissions, or give another --output"
        ) from None
