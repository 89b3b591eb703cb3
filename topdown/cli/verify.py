"""`topdown verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Quiet
from topdown.machine.terminal import Terminal


def verify(
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release.")],
    quiet: Quiet = False,
) -> None:
    """Check that a release is whole and nothing but what was written, for whoever receives it.

    Every file against its manifest, and the counts against each other. Ends with code 3, naming the files at fault.
    """
    from topdown.release.verified import verify_release

    found = verify_release(public)
    out = Terminal(quiet=quiet)
    out.say(f"ok        {', '.join(found.files)} are what the manifest lists, and the counts add up")
    out.say(f"next      compare with the publisher's: SHA-256 of manifest.json is {found.sha256}")
