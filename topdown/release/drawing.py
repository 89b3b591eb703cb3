"""What a manifest says of how the measurements of its release were drawn.

Reads the public directory alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from topdown.errors import DataError, TopdownError
from topdown.privacy.mechanism import MECHANISMS
from topdown.privacy.plan import Plan
from topdown.release.manifest import LIMITS_STATEMENT, MALFORMED, LedgerEntry, Origin
from topdown.release.places import MANIFEST
from topdown.release.released_counts import schema_of
from topdown.wording import reason, shown_path
from topdown.workload import Schema


class Drawing(NamedTuple):
    """How measurements were drawn: under which ``plan``, or, where it is not known, what was ``measured`` and by which
    ``mechanism``; of which ``cells`` and ``schema`` (None where it is that of the cells); where they come from
    (``origin``); and whether they are ``fit`` for release.
    """

    plan: Plan | None
    measured: Any
    mechanism: str | None
    cells: tuple[str, ...]
    schema: Schema | None
    origin: Origin
    fit: bool


def drawing_of(folder: Path, manifest: Mapping[str, Any]) -> Drawing:
    """How the measurements of the release in ``folder`` were drawn, by its ``manifest``. Raises `DataError` where it
    does not describe it.
    """
    large = manifest["cells"] is None
    try:
        privacy = dict(manifest["privacy"])
        measured: Any = privacy.get("measured")  # without a plan
        plan = Plan.from_dict(privacy) if measured is None else None
        mechanism = None if plan is not None or privacy["mechanism"] is None else MECHANISMS[privacy["mechanism"]].name
        limits = manifest.get("limits")  # since version 1.5
        spine = manifest.get("spine")  # since version 1.7
        origin = Origin(
            units=manifest["units"]["sha256"],
            ledger=None if manifest["ledger"] is None else LedgerEntry(**manifest["ledger"]),
            notices=tuple(str(one) for one in manifest.get("notices", ())),  # since version 1.4
            limits=None if limits is None else str(limits["sha256"]),
            limits_statement=LIMITS_STATEMENT if limits is None else str(limits["statement"]),
            noise=None if manifest.get("noise") is None else str(manifest["noise"]),  # since version 1.6
            areas=None if spine is None or spine["areas_sha256"] is None else str(spine["areas_sha256"]),
        )
        return Drawing(
            plan, measured, mechanism,
            cells=() if large else tuple(str(cell) for cell in manifest["cells"]),
            schema=None if manifest["schema"] is None and not large else schema_of(folder, manifest),
            origin=origin,
            fit=manifest["fit_for_release"] is True,
        )  # fmt: skip
    except MALFORMED as error:
        raise DataError(
            f"{shown_path(folder / MANIFEST)}: does not describe how the measurements were drawn: "
            f"{error if isinstance(error, TopdownError) else reason(error)}"
        ) from None
