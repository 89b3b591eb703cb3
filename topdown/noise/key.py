"""Noise by key: one secret of a release, from which every stream of its noise is derived by name.

Whoever computes a part of a release again, on any machine and in any order, draws the same noise; only the secret has
to be kept. A stream is AES-256 in counter mode (NIST SP 800-38A) under a key of its own, HMAC-SHA256 (RFC 2104, as in
HKDF's expansion, RFC 5869) of its name under the secret: without the secret, nobody can distinguish it from the
operating system's entropy. What a stream's key is derived from begins with the digests of the release's configuration
and of its input, and goes on with a code of the very numbers that get the noise, HMAC-SHA256 of them under the secret
(as the synthetic initialization vector of RFC 5297): other numbers get independent noise, whatever the digests say.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.noise.randomness import CHUNK_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

SECRET_BYTES = 32
STREAMS_VERSION = 2
"""The version of the streams and of the draws made from them; it changes whenever the same key would give other noise.
"""

DRAWS_PER_STREAM = 1 << 18
"""About so many draws share a stream: enough to be worth a stream, few enough to be drawn again."""

_ZEROS = bytes(CHUNK_BYTES)
_NUMBERS_AT_ONCE = 1 << 20


class _Secret:
    """A secret from which others are derived by name.

    It is as confidential as the counts: ``repr`` does not show it, and it cannot be pickled; another process reads it
    from the folder of the release. Raises `ConfigError` for anything but 32 bytes.
    """

    __slots__ = ("_bound", "_secret")

    def __init__(self, secret: bytes, *bound: str) -> None:
        if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
            raise ConfigError(f"secret: give {SECRET_BYTES} secret bytes from the operating system")
        self._secret = secret
        self._bound = bound

    def derive(self, *name: int | str) -> bytes:
        """32 bytes derived from this secret, from what it is bound to and from ``name``."""
        # A list in JSON can be read in one way only, so that two names are never one message.
        message = json.dumps(["topdown", STREAMS_VERSION, *self._bound, *name], separators=(",", ":"))
        return hmac.digest(self._secret, message.encode("ascii"), hashlib.sha256)

    def code(self, purpose: str, arrays: Iterable[tuple[Any, npt.NDArray[Any]]]) -> str:
        """HMAC-SHA256 of ``arrays``, each with a name that JSON can write, under a key for this ``purpose``.

        It reveals nothing about the arrays. The code covers the name, shape, type and values of every array, column by
        column.
        """
        code = hmac.new(self.derive("code", purpose), digestmod="sha256")
        for name, values in arrays:
            by_column = values.T
            code.update(json.dumps([name, by_column.dtype.str, by_column.shape]).encode("ascii"))
            if by_column.ndim < 2 or by_column.flags.c_contiguous:
                code.update(np.ascontiguousarray(by_column).data)
                continue
            # An array that is not contiguous, such as a broadcast 0, is copied a few columns at a time.
            step = max(1, _NUMBERS_AT_ONCE // max(1, len(values)))
            for first in range(0, len(by_column), step):
                code.update(np.ascontiguousarray(by_column[first : first + step]).data)
        return code.hexdigest()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "the secret of a release cannot be pickled: read it from the release's folder where it is needed"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}(hidden)>"


class NoiseKey(_Secret):
    """The secret of one release, bound to its ``configuration`` and its ``input``, two digests."""

    __slots__ = ()

    fit_for_release: ClassVar[bool] = True

    def __init__(self, secret: bytes, configuration: str, input: str) -> None:
        super().__init__(secret, configuration, input)

    def streams(self, numbers: str) -> NoiseStreams:
        """The streams of noise for the numbers of which ``numbers`` is a `code` under this key, and for no others."""
        return NoiseStreams(self.derive("streams", numbers))

    def of_table(self, name: str) -> NoiseKey:
        """The key of one of several tables of the release: equal numbers of two tables have independent noise."""
        return NoiseKey(self.derive("table", name), *self._bound)


class NoiseStreams(_Secret):
    """The streams of noise for some numbers that are to be protected, see `NoiseKey.streams`."""

    __slots__ = ()

    def stream(self, *name: int | str) -> KeyStream:
        """The stream called ``name``, from its start."""
        return KeyStream(self.derive("stream", *name))

    def address_key(self, *name: int | str) -> bytes:
        """The key of the noise by address called ``name`` (`addressed.AddressedNoise`), of which no stream is part."""
        return self.derive("addresses", *name)


def nodes_of_chunk(n_answers: int) -> int:
    """How many nodes share a stream for their answers to one query."""
    return max(1, DRAWS_PER_STREAM // n_answers)


def chunks(n_nodes: int, n_answers: int) -> Iterator[slice]:
    """The nodes of a level, counted from its first, in runs whose answers to one query share a stream."""
    return (nodes for _, nodes in chunks_of(n_nodes, n_answers, 0, n_nodes))


def chunks_of(n_nodes: int, n_answers: int, first: int, stop: int) -> Iterator[tuple[int, slice]]:
    """The chunks (see `chunks`) that have nodes between ``first`` and ``stop``, each with its number."""
    step = nodes_of_chunk(n_answers)
    return ((k, slice(k * step, min((k + 1) * step, n_nodes))) for k in range(first // step, -(-stop // step)))


class KeyStream:
    """A stream of bytes: AES-256 in counter mode, from 0, under a ``key`` that no other stream has."""

    __slots__ = ("_cipher",)

    fit_for_release: ClassVar[bool] = True

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._cipher: CipherContext = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def read(self, nbytes: int) -> bytes:
        """The next ``nbytes`` bytes; the stream does not depend on how it is cut into reads."""
        if nbytes == CHUNK_BYTES:
            return self._cipher.update(_ZEROS)
        return self._cipher.update(bytes(nbytes))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream of noise cannot be pickled: derive it again where it is needed")

    def __repr__(self) -> str:
        return "<KeyStream(key hidden)>"
