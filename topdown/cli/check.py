"""`topdown check`."""

from __future__ import annotations

from topdown.cli.options import File, Quiet, Verbose, console, set_logging


def check(file: File, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Validate FILE, its data and its plan, and rehearse on stand-in counts; draw nothing, write nothing."""
    from topdown.config import load_any
    from topdown.machine.progress import Shown, Silent
    from topdown.pipeline import draw

    set_logging(verbose)
    with Shown(console(quiet), 2) as stages:
        draw.check(load_any(file), Silent() if quiet else stages)
        stages.say("ok        configuration, data and plan agree; nothing was drawn or written")
