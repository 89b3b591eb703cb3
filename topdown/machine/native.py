"""Loops in LLVM's assembly, for short work: loading numba takes 0.8 s, this a tenth of it. It is not loaded where there
is little memory, since LLVM ends the process when its memory runs out.
"""

from __future__ import annotations

import sys
from typing import Any

from topdown.machine.memory import available_memory

_ROOM = 1 << 29
"""The library is loaded only with so many free bytes, of which it takes an eighth."""


class Native:
    """Compiled ``assembly``, whose functions are found by name as long as this lives."""

    def __init__(self, assembly: str) -> None:
        import llvmlite.binding

        llvm: Any = llvmlite.binding
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(opt=3)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(assembly), machine)
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Where the function ``name`` begins."""
        return int(self._engine.get_function_address(name))


def native(assembly: str) -> Native | None:
    """``assembly`` compiled for this computer; None where that is not possible, for example where memory cannot be made
    executable, or where little memory is free. Numbers are little-endian.
    """
    free = available_memory()
    if sys.byteorder != "little" or (free is not None and free < _ROOM):
        return None
    try:
        return Native(assembly)
    except (ImportError, OSError, MemoryError, RuntimeError):
        return None
