"""Linear algebra on one thread, as the command keeps it: imported before numpy is loaded, since tests run side by side.

Two processes with a thread for every processor each wait for one another: the spines of production take five times as
long.
"""

from __future__ import annotations

import os

from topdown.machine.system import THREADS_OF_ALGEBRA

for name in THREADS_OF_ALGEBRA:
    os.environ.setdefault(name, "1")
