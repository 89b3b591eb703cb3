"""Executors by name, for the option --engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from topdown.errors import ConfigError, DataError, require_known
from topdown.machine.allocation import settle_process
from topdown.machine.tasks import Submits
from topdown.wording import reason, shown

EXECUTORS = ("processes", "dask")
"""The executors that can work on parts."""

_SECONDS = 20
_LOOKED_AT_EVERY = 2.0
_ASKED_EVERY = 30.0
_ANSWERED_WITHIN = 60.0
"""Seconds between two checks that a scheduler answers during a long task, and how long it may take to answer."""


class Cluster:
    """A Dask cluster as an executor, by the ``client`` of its scheduler."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # A task that is submitted again must run again; otherwise Dask would return the failed one's result.
        self._executor = client.get_executor(pure=False)

    @property
    def count(self) -> int:
        """How many tasks it works on at once. Raises `DataError` where the scheduler is lost."""
        try:
            threads: dict[str, int] = self._client.nthreads()
        except Exception:
            raise _lost() from None
        return max(1, sum(threads.values()))

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """A future of the call. Raises `DataError` where the scheduler is lost."""
        try:
            return _Watched(self._client, self._executor.submit(_settled, fn, *args))
        except Exception:
            if _is_closed(self._client):
                raise _lost() from None
            raise


def _is_closed(client: Any) -> bool:
    return client.status in ("closing", "closed")


def _lost() -> DataError:
    return DataError(
        "the scheduler of the cluster is lost; start it and its workers, and run again: what is done is kept"
    )


def _settled(fn: Callable[..., Any], /, *args: Any) -> Any:
    """The call, in a process with the same settings of memory as local ones, without which it would take a fifth
    longer.
    """
    settle_process()
    return fn(*args)


class _Watched:
    """A ``future`` of a cluster. Dask lets it wait forever where the scheduler is lost but a proxy in front of it keeps
    the connections open.
    """

    def __init__(self, client: Any, future: Any) -> None:
        self._client, self._future = client, future

    def result(self) -> Any:
        """The call's result. Raises what it raised, and `DataError` where the scheduler is lost."""
        heard = monotonic()
        while not self._future.done():
            try:
                return self._future.result(timeout=_LOOKED_AT_EVERY)
            except TimeoutError:
                if monotonic() > heard + _ASKED_EVERY:
                    self._require_answer()
                    heard = monotonic()
            except CancelledError:
                pass  # all futures of a closed client end in this way
            if _is_closed(self._client):
                raise _lost()
        return self._future.result()

    def _require_answer(self) -> None:
        try:
            self._client.sync(self._client.scheduler.identity, callback_timeout=_ANSWERED_WITHIN)
        except Exception:
            raise _lost() from None


@contextmanager
def executor_of(engine: str, scheduler: str | None) -> Iterator[Submits | None]:
    """The executor of ``engine``: None for "processes", of this computer; of "dask" the cluster's at ``scheduler``.

    A hostile scheduler can run code in this process: Dask's messages are pickles.
    Raises `ConfigError` for an unknown engine, for one without what it needs and for an address that Dask's settings do
    not allow, `DataError` where the scheduler does not answer.
    """
    require_known(engine, EXECUTORS, "engine")
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
        client = _connected(Client, scheduler)
    except (OSError, ValueError) as error:
        raise DataError(
            f"--scheduler {shown(scheduler)}: does not answer: {reason(error, 'no scheduler is there')}; start it, or "
            "correct the address"
        ) from None
    except (TypeError, RuntimeError):  # what Dask says of TLS without a certificate, and of an address without TLS
        raise ConfigError(
            f"--scheduler {shown(scheduler)}: Dask's own settings do not allow it: a tls:// address needs a "
            "certificate, in distributed.comm.tls, and where distributed.comm.require-encryption is true every address "
            "is to be a tls:// one"
        ) from None
    try:
        yield Cluster(client)
    finally:
        with suppress(TimeoutError):
            client.close(timeout=_SECONDS)


def _connected(kind: Any, scheduler: str) -> Any:
    """A Dask client of the ``kind`` at ``scheduler``. One that does not connect is closed: its finalizer would take a
    lock that another client holds while it starts, on the same thread, and wait forever.
    """
    client = kind.__new__(kind)
    try:
        client.__init__(scheduler, timeout=_SECONDS)
    except BaseException:
        with suppress(Exception):
            client.close(timeout=_SECONDS)
        raise
    return client
