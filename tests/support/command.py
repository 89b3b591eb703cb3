"""The command `topdown`, called in the tests' own process."""

from __future__ import annotations

import pytest

from topdown.cli import app


def topdown_command(*arguments: object) -> int:
    """The exit code of ``topdown ARGUMENTS``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["topdown", *map(str, arguments)])
        patch.setenv("COLUMNS", "200")  # so that no message is folded
        with pytest.raises(SystemExit) as stop:
            app.main()
    return int(stop.value.code or 0)
