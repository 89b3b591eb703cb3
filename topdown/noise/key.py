"""Noise by key: one secret of a release, from which every stream of its noise is derived by name.

Who computes a part of a release again, on whatever machine and in whatever order, draws the same noise; nothing has to
be kept but the secret. A stream is AES-256 in counter mode (NIST SP 800-38A) under a key of its own, HMAC-SHA256 (RFC
2104, as in HKDF's expansion, RFC 5869) of its name under the secret: whoever lacks the secret cannot tell it from the
operating system's entropy. A stream's name begins with what the release is of, its configuration and its input, so that
no two tables get the same noise.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NoReturn

from topdown.errors import ConfigError
from topdown.noise.randomness import CHUNK_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

SECRET_BYTES = 32
STREAMS_VERSION = 1
"""Of the streams and of the draws made from them: another number where the same key would draw other noise."""

DRAWS_PER_STREAM = 1 << 18
"""About so many draws have a stream of their own: enough to make a stream for, few enough to draw them again."""

_ZEROS = bytes(CHUNK_BYTES)


class NoiseKey:
    """The secret of one release, bound to its ``configuration`` and its ``input``, two digests.

    As confidential as the counts: ``repr`` shows nothing of it, and it cannot be pickled; who works elsewhere reads it
    from the release's own folder. Raises `ConfigError` for what is not a secret of 32 bytes.
    """

    __slots__ = ("_bound", "_secret")

    fit_for_release: ClassVar[bool] = True

    def __init__(self, secret: bytes, configuration: str, input: str) -> None:
        if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
            raise ConfigError(f"secret: give {SECRET_BYTES} secret bytes from the operating system")
        self._secret = secret
        self._bound = (configuration, input)

    def derive(self, *name: int | str) -> bytes:
        """32 bytes that only this secret, configuration, input and ``name`` give."""
        # A list in JSON can be read in one way only, so that two names are never one message.
        message = json.dumps(["topdown", STREAMS_VERSION, *self._bound, *name], separators=(",", ":"))
        return hmac.digest(self._secret, message.encode("ascii"), hashlib.sha256)

    def stream(self, *name: int | str) -> KeyStream:
        """The stream called ``name``, from its start."""
        return KeyStream(self.derive("stream", *name))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a release's secret is not pickled: read it from the release's folder where it is needed")

    def __repr__(self) -> str:
        return "<NoiseKey(hidden)>"


def nodes_of_chunk(n_answers: int) -> int:
    """How many nodes share a stream for their answers to one query."""
    return max(1, DRAWS_PER_STREAM // n_answers)


def chunks(n_nodes: int, n_answers: int) -> Iterator[slice]:
    """The nodes of a level, counted from its first, in runs whose answers to one query share a stream."""
    return (nodes for _, nodes in chunks_of(n_nodes, n_answers, 0, n_nodes))


def chunks_of(n_nodes: int, n_answers: int, first: int, stop: int) -> Iterator[tuple[int, slice]]:
    """Those of `chunks` that have nodes from ``first`` to ``stop``, each with its number."""
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
        raise TypeError("a stream of noise is not pickled: derive it again where it is needed")

    def __repr__(self) -> str:
        return "<KeyStream(key hidden)>"
