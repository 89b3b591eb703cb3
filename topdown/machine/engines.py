"""Executors of others, by name: what a command line can ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from topdown.errors import ConfigError, DataError
from topdown.machine.allocation import settle_process
from topdown.machine.tasks import Submits
from topdown.wording import reason, shown

_SECONDS = 20
_LOOKED_AT_EVERY = 2.0


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
        return _Watched(self._client, self._executor.submit(_settled, fn, *args))


def _settled(fn: Callable[..., Any], /, *args: Any) -> Any:
    """The call, in a process that takes memory as processes of this computer do: a fifth of the time went with pages
    that were given back and taken again."""
    settle_process()
    return fn(*args)


class _Watched:
    """A ``future`` of a cluster, which Dask leaves without a result for ever where the scheduler is lost."""

    def __init__(self, client: Any, future: Any) -> None:
        self._client, self._future = client, future

    def result(self) -> Any:
        """The call's result. Raises what it raised, and `DataError` where the scheduler is lost."""
        while not self._future.done():
            try:
                return self._future.result(timeout=_LOOKED_AT_EVERY)
            except TimeoutError:
                if self._client.status in ("closing", "closed"):
                    raise DataError(
                        "the scheduler of the cluster is lost; start it and its workers, and run again: what is done "
                        "is kept"
                    ) from None
        return self._future.result()


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
