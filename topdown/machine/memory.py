"""How much memory there is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from topdown.errors import DataError
from topdown.machine.system import address_space_limit
from topdown.wording import shown_path

if TYPE_CHECKING:
    import psutil


def available_memory() -> int | None:
    """Bytes that this process may still take, None where unknown: the least of the machine's memory, its control
    group's limit and what ``ulimit -v`` leaves.
    """
    import psutil

    machine = int(psutil.virtual_memory().available)
    found = [left for left in (machine, _of_control_group(), address_space_left()) if left is not None]
    return min(found) if found else None


def held_memory() -> int:
    """Bytes of memory that this process holds."""
    return int(_process().memory_info().rss)


_UNITS = (("GiB", 30), ("MiB", 20), ("KiB", 10))


def gibibytes(size: int) -> str:
    """``size`` for messages; only for sizes that are public."""
    for unit, power in _UNITS:
        if size >= 1 << power:
            return f"{size / (1 << power):.{2 if size < 10 << power else 1}f} {unit}"
    return f"{size} bytes"


def about(size: int) -> str:
    """An estimated ``size`` for messages, rounded up to two digits."""
    unit, power = next(((unit, power) for unit, power in _UNITS if size >= 1 << power), ("bytes", 0))
    number = size / (1 << power)
    step = 10.0 ** (len(str(int(number))) - 2)
    return f"{math.ceil(number / step) * step:.{1 if step < 1 and power else 0}f} {unit}"


def address_space_left() -> int | None:
    """Bytes of address space that a limit (``ulimit -v``) leaves this process; None where there is no limit."""
    limit = address_space_limit()
    return None if limit is None else max(0, limit - int(_process().memory_info().vms))


def _process() -> psutil.Process:
    import psutil

    return psutil.Process()


def _of_control_group() -> int | None:
    folder = Path("/sys/fs/cgroup")
    limit, used, facts = folder / "memory.max", folder / "memory.current", folder / "memory.stat"
    if limit.exists() and used.exists() and (most := limit.read_text().strip()) != "max":
        # Cached pages of files count as used, but are freed when memory is needed.
        lines = facts.read_text().splitlines() if facts.exists() else []
        cached = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
        return int(most) - int(used.read_text()) + cached
    return None


def most_at_once() -> int | None:
    """How many bytes a table may take when it is read: half of the free memory, since a run needs at least twice as
    much.
    """
    free = available_memory()
    return None if free is None else free // 2


def too_large(path: Path, when: str, most: int) -> DataError:
    """The error of a file that would take more than ``most`` ``when`` it is read.

    It does not state the size, which would reveal the number of records of the confidential table.
    """
    return DataError(
        f"{shown_path(path)}: takes more than the {gibibytes(most)} that can be given to it here {when}; correct the "
        "file, leave rows or columns out, or use a larger machine"
    )
