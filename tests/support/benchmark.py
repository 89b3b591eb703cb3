"""The benchmarks' modules, of which tests take the measurements and the inputs."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from support.places import REPOSITORY


def benchmark_module(name: str) -> ModuleType:
    """benchmarks/NAME.py, which imports what lies beside it."""
    folder = REPOSITORY / "benchmarks"
    spec = importlib.util.spec_from_file_location(f"benchmark_of_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module
