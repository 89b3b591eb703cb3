"""Executors of others, by name: what a command line can ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from topdown.errors import ConfigError, DataError
from topdown.machine.tasks import Submits
from topdown.wording import reason, shown

_SECONDS = 20


class Cluster:
    """A Dask cluster as an executor, by the ``client`` of its scheduler."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # A task that is given again is done again: Dask would else take a failed one's result for it.
        self._executor = client.get_executor(pure=False)

    @property
    def count(self) -> int:
        """How many tasks it works on at once."""
        threads: dict[str, int] = self._client.nthreads()
        return max(1, sum(threads.values()))

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """A future of the call."""
        return self._executor.submit(fn, *args)


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
        client: Any = Client(scheduler, timeout=_SECONDS)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise DataError(
            f"--scheduler {shown(scheduler)}: does not answer: {reason(error, 'no scheduler is there')}; start it, or "
            "correct the address"
        ) from None
    try:
        yield Cluster(client)
    finally:
        client.close()
