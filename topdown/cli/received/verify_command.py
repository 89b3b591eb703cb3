"""`topdown verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topdown.cli.options import Quiet
from topdown.machine.terminal import Terminal

if TYPE_CHECKING:
    import pandas as pd


def verify(
    public: Annotated[
        Path,
        typer.Argument(
            metavar="PUBLIC",
            help="The directory public/ of a release, or a ZIP file of it; or the folder microdata/ of linked tables.",
        ),
    ],
    quiet: Quiet = False,
) -> None:
    """Check a release that you received: that it is complete, unchanged and consistent.

    Compares every file with the manifest, and the counts with each other. Ends with exit code 3 and names the wrong
    files if the release is not valid. Of linked microdata every household is looked at with its members, and every
    unit for results that cannot be; what is only improbable is counted.
    """
    from topdown.microdata.linked_microdata import is_linked
    from topdown.release.archive import unpacked
    from topdown.release.linked_release import is_linked_release
    from topdown.release.verified import verify_release

    out = Terminal(quiet=quiet)
    if is_linked(public):
        _verify_records(public, out)
        return
    with unpacked(public) as folder:
        if is_linked_release(folder):
            _verify_both(folder, out)
            return
        found = verify_release(folder)
    out.say(f"ok        {', '.join(found.files)} agree with the manifest, and the counts add up")
    out.say(f"next      compare with the publisher's: the SHA-256 of manifest.json is {found.sha256}")


def _verify_both(folder: Path, out: Terminal) -> None:
    from topdown.release.linked_release import verify_linked

    found = verify_linked(folder)
    names = " and ".join(found.releases)
    out.say(f"ok        {names} agree with their manifests, the counts add up, and what is public is kept")
    _say_results(found.results, out)
    _require_possible(found.impossible, folder)
    out.say(f"ok        no unit has a result of {names} together that cannot be")
    out.say(f"next      compare with the publisher's: SHA-256 of link.json is {found.sha256}")


def _say_results(results: pd.DataFrame, out: Terminal) -> None:
    for row in results[results["found"] > 0].itertuples():
        kind = "wrong " if row.impossible else "noted "
        out.say(f"{kind}    {row.result}: {row.found:,} of {row.among:,} units of level {row.level}")


def _require_possible(impossible: int, folder: Path) -> None:
    from topdown.errors import DataError
    from topdown.wording import FETCH, shown_path

    if impossible:
        raise DataError(f"{shown_path(folder)}: {impossible:,} records or units are as none can be; {FETCH}")


def _verify_records(folder: Path, out: Terminal) -> None:
    from topdown.microdata.linked_microdata import check_linked, read_linked, require_equal, require_units
    from topdown.release.linked_release import public_units
    from topdown.release.published import read_release

    microdata = read_linked(folder)
    names = microdata.description.universe.names
    public = folder.absolute().parent / "public"
    beside = {name: public / name for name in names}
    if all(path.is_dir() for path in beside.values()):
        require_equal(microdata, {name: read_release(path).release for name, path in beside.items()})
        known = public_units(public, microdata.geography)
        if "units" in known:
            require_units(microdata, known["units"])
        out.say("ok        the records, tabulated, are the releases of both tables in public/ beside them")
    found = check_linked(microdata)
    for said, number in found.faults.items():
        out.say(f"wrong     {number:,} times: {said}")
    _say_results(found.results, out)
    _require_possible(found.impossible, folder)
    out.say(
        f"ok        {found.households:,} {names[0]} and {found.persons:,} {names[1]}: all of them fit together, and "
        f"no unit of {', '.join(microdata.geography.levels)} has a result that cannot be"
    )
