"""The environment of tests and of the commands that they run, as an installed package has it: imported before numpy is.

- Linear algebra on one thread, as the command keeps it: tests run side by side, and two processes with a thread for
  every processor each wait for one another (production's spines take five times as long).
- Modules are compiled once and not by every command, which takes 0.3 s.
"""

from __future__ import annotations

import os
import sys

from topdown.machine.system import THREADS_OF_ALGEBRA

for name in THREADS_OF_ALGEBRA:
    os.environ.setdefault(name, "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
