"""`topdown verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Quiet
from topdown.machine.terminal import Terminal


def verify(
    public: Annotated[
        Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release, or a ZIP file of it.")
    ],
    quiet: Quiet = False,
) -> None:
    """Check a release that you received: that it is complete, unchanged and consistent.

    Compares every file with the manifest, and the counts with each other. Ends with exit code 3 and names the wrong
    files if the release is not valid.
    """
    from topdown.release.verified import verify_release

    found = verify_release(public)
    out = Terminal(quiet=quiet)
    out.say(f"ok        {', '.join(found.files)} are what the manifest lists, and the counts add up")
    out.say(f"next      compare with the publisher's: SHA-256 of manifest.json is {found.sha256}")
