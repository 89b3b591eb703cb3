"""Executors of others, by name: what a command line can ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from topdown.errors import ConfigError, DataError
from topdown.machine.tasks import Submits
from topdown.wording import reason, shown

_SECONDS = 20


@contextmanager
def executor_of(engine: str, scheduler: str | None) -> Iterator[Submits | None]:
    """The executor of ``engine``: None for "processes", of this computer; of "dask" the cluster's at ``scheduler``.

    Raises `ConfigError` for an engine without what it needs, `DataError` where the scheduler does not answer.
    """
    if engine == "processes":
        if scheduler is not None:
            raise ConfigError("--scheduler is for --engine dask; give both, or neither")
        yield None
        return
    if scheduler is None:
        raise ConfigError("--engine dask needs the address of a scheduler: --scheduler tcp://HOST:8786")
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError("--engine dask needs Dask: pip install 'topdown[cluster]'") from None
    try:
        client: Any = Client(scheduler, timeout=_SECONDS)
    except (OSError, ValueError) as error:
        raise DataError(
            f"--scheduler {shown(scheduler)}: does not answer: {reason(error, 'no scheduler is there')}; start it, or "
            "correct the address"
        ) from None
    try:
        # A task that is given again is done again: Dask would else take a failed one's result for it.
        yield client.get_executor(pure=False)
    finally:
        client.close()
