"""Loops in LLVM's assembly, for those that are over before a compiler of Python is loaded: that takes 0.8 s of a
processor, and this a tenth of it.

Nothing is loaded where there is little room: LLVM ends the process where its memory runs out.
"""

from __future__ import annotations

import sys
from typing import Any

from topdown.machine.memory import available_memory

_ROOM = 1 << 29
"""Bytes that are free where the library is loaded, of which it takes an eighth."""


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
    """``assembly`` compiled for this computer; None where that cannot be done here, as on one that lets nobody make
    code, or where little memory is free. Numbers are little-endian.
    """
    free = available_memory()
    if sys.byteorder != "little" or (free is not None and free < _ROOM):
        return None
    try:
        return Native(assembly)
    except (ImportError, OSError, MemoryError, RuntimeError):
        return None
