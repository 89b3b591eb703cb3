"""Memory that is free goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SMALL_ARRAYS_LET_GO = """
from topdown.machine.allocation import give_back, settle_process
settle_process()
import numpy as np
from topdown.machine.memory import held_memory

arrays = [np.ones(8000) for _ in range(2000)]
kept = arrays[::50]  # so that what is free lies between what is in use
held = held_memory()
del arrays
give_back()
print(held - held_memory())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the system decides alone")
def test_what_is_free_between_what_is_in_use_goes_back() -> None:
    program = [sys.executable, "-c", _SMALL_ARRAYS_LET_GO]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 100_000_000  # of 128,000,000
