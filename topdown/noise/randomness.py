"""Where random bits come from: the operating system for a release, a seed for a study, a key for a repeat.

A law takes its random bytes from a :class:`Source`; everything else is the same for a release and a study. Whether what
was drawn may be published is the source's ``fit_for_release``.
"""

from __future__ import annotations

import hashlib
import operator
import os
import threading
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from topdown.errors import ConfigError

# Requests of this size amortise the system call, and their result still fits into the second-level cache.
CHUNK_BYTES = 128 * 1024


class Source(Protocol):
    """Independent, uniformly random bytes.

    Examples:
        >>> class Zeros:
        ...     def read(self, n: int) -> bytes:
        ...         return bytes(n)
        >>> source: td.noise.Source = Zeros()  # for a test; a release refuses it
        >>> source.read(2)
        b'\\x00\\x00'
    """

    @property
    def fit_for_release(self) -> bool:
        """Whether noise made from these bytes may be published: nobody else can know or repeat them."""
        ...

    def read(self, nbytes: int) -> bytes:
        """The next ``nbytes`` bytes, exactly as many; no byte is ever handed out twice."""
        ...


def require_source(source: Source) -> None:
    """Refuse what has no random bytes, such as a bare seed. Raises `ConfigError`."""
    if not hasattr(source, "read"):
        raise ConfigError(f"source {source!r}: give SecureSource() for a release or SeededSource(seed) for a study")


def read_exactly(source: Source, nbytes: int) -> bytes:
    """The next ``nbytes`` bytes of ``source``; everything that draws reads through here.

    Raises `ConfigError` for a source that returns another number of bytes: numpy would spread one word over many draws,
    which would all get the same noise.
    """
    require_source(source)
    data = source.read(nbytes)
    if not isinstance(data, bytes) or len(data) != nbytes:
        got = f"{len(data)} bytes" if isinstance(data, bytes) else f"a {type(data).__name__}"
        raise ConfigError(
            f"source {type(source).__name__}: read({nbytes}) returned {got}, and draws would share noise; a source "
            "returns exactly the bytes that it is asked for, all of them new: correct it, or use SecureSource()"
        )
    return data


def uint16(source: Source, count: int) -> NDArray[np.uint16]:
    """``count`` independent uniform integers in [0, 2^16), read-only."""
    return np.frombuffer(read_exactly(source, 2 * count), dtype="<u2")


def uint64(source: Source, count: int) -> NDArray[np.uint64]:
    """``count`` independent uniform integers in [0, 2^64), read-only."""
    return np.frombuffer(read_exactly(source, 8 * count), dtype="<u8")


def uniform(source: Source, count: int) -> NDArray[np.float64]:
    """``count`` independent doubles, uniform on the odd multiples of 2^-53 in the open interval (0, 1).

    The grid has 2^52 points, excludes both ends and 1/2, and u -> 1 - u maps it exactly onto itself, so that
    a law drawn by its inverse cdf is exactly as symmetric as the inverse is. For studies: an inverse cdf of
    such a grid has holes, and holes leak in a release. Raises `ConfigError` as `require_study_source` does.
    """
    require_study_source(source)
    return ((uint64(source, count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def require_study_source(source: Source) -> None:
    """Refuse, by `ConfigError`, a source that is meant for releases: what is drawn from floats must not be released."""
    if getattr(source, "fit_for_release", False):
        raise ConfigError(
            f"{type(source).__name__} is for releases, and a continuous law is not: its floating-point draws have gaps "
            "that depend on the true value and reveal it; for a release draw from DiscreteLaplace or "
            "DiscreteGaussian (with grid_bits for fractions), for a study from SeededSource(seed)"
        )


@dataclass(frozen=True, slots=True)
class SecureSource:
    """Entropy of the operating system (``os.urandom``), for releases.

    Nothing is kept in user space: forked workers and threads share no state, and no draw can be repeated.

    Examples:
        >>> len(td.SecureSource().read(32))
        32
    """

    fit_for_release: ClassVar[bool] = True

    def read(self, nbytes: int) -> bytes:
        """The next ``nbytes`` bytes from the operating system, requested in pieces of 128 KiB."""
        if nbytes <= CHUNK_BYTES:
            return os.urandom(nbytes)
        whole, rest = divmod(nbytes, CHUNK_BYTES)
        pieces = [os.urandom(CHUNK_BYTES) for _ in range(whole)]
        return b"".join([*pieces, os.urandom(rest)])


class SeededSource:
    """A reproducible stream (numpy's PCG64) for studies; never for a release.

    ``SeededSource(7)``, or ``SeededSource((7, block, part))`` for one stream per block of replicates and part
    of the work: different names give independent streams, whatever process or order they are read in. The
    elements are integers or strings. Every ``read`` starts on a fresh 64-bit word.

    Args:
        seed: a whole number, or a tuple of whole numbers and strings.

    Examples:
        >>> law = td.noise.DiscreteLaplace(scale=10)
        >>> law.sample(4, td.SeededSource(1))
        array([  1,  -3, -21,  -7])
        >>> law.sample(4, td.SeededSource(1))
        array([  1,  -3, -21,  -7])
    """

    __slots__ = ("_generator", "name")

    fit_for_release: ClassVar[bool] = False
    name: tuple[int | str, ...]

    def __init__(self, seed: int | tuple[int | str, ...]) -> None:
        elements = seed if isinstance(seed, tuple) else (seed,)
        try:
            self.name = tuple(e if isinstance(e, str) else operator.index(e) for e in elements)
        except TypeError:
            raise ConfigError(f"seed {seed!r}: give an integer, or a tuple of integers and strings") from None
        # A hash of the whole name: numpy's own SeedSequence takes (1,) and (1, 0) for the same entropy.
        entropy = int.from_bytes(hashlib.sha256(repr(self.name).encode()).digest(), "little")
        self._generator = np.random.PCG64(entropy)

    def read(self, nbytes: int) -> bytes:
        """The next ``nbytes`` bytes of the stream; the rest of its last 64-bit word is dropped."""
        words = self._generator.random_raw(-(-nbytes // 8))
        return np.asarray(words, dtype="<u8").tobytes()[:nbytes]

    def spawn(self, *key: int | str) -> SeededSource:
        """The stream named by this one's name and ``key``, from its start, independent of how far this one was read.

        Args:
            key: whole numbers and strings that are added to the name.
        """
        return SeededSource(self.name + key)

    def __repr__(self) -> str:
        seed = self.name[0] if len(self.name) == 1 else self.name
        return f"<SeededSource({seed!r}), not for release>"


class KeyedSource:
    """A cryptographic stream from a secret 32-byte key: a restarted release repeats its draws exactly.

    Block i of 128 KiB is SHAKE-256(domain, key, i) (FIPS 202), so that without the key, nobody can distinguish the
    stream from the operating system's. The key is as confidential as the noise: ``repr`` hides it, and the source
    cannot be pickled. A forked process is refused, since it would repeat its parent's bytes: give each worker its own
    `spawn`.

    Args:
        key: 32 secret bytes.

    Examples:
        >>> source = td.noise.KeyedSource(bytes(32))  # for a release KeyedSource.fresh()
        >>> law = td.noise.DiscreteLaplace(scale=10)
        >>> bool((law.sample(4, source.spawn("a")) == law.sample(4, source.spawn("a"))).all())
        True
    """

    __slots__ = ("_block", "_index", "_key", "_lock", "_offset", "_pid")

    fit_for_release: ClassVar[bool] = True

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != 32:
            raise ConfigError("key: give 32 secret bytes, such as KeyedSource.fresh().key")
        self._key = key
        self._block = b""
        self._offset = 0
        self._index = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @classmethod
    def fresh(cls) -> KeyedSource:
        """A stream whose key is drawn from the operating system now."""
        return cls(os.urandom(32))

    @property
    def key(self) -> bytes:
        """The secret: keep it where the confidential counts are kept."""
        return self._key

    def read(self, nbytes: int) -> bytes:
        """The next ``nbytes`` bytes; the stream does not depend on how it is cut into reads.

        Raises RuntimeError in a process forked after the source was made.
        """
        if os.getpid() != self._pid:
            raise RuntimeError("a KeyedSource would repeat its bytes after a fork: give each worker its own spawn()")
        with self._lock:
            pieces = []
            missing = nbytes
            while missing > 0:
                if self._offset == CHUNK_BYTES:
                    self._block = b""
                    self._index += 1
                    self._offset = 0
                if self._offset == len(self._block):
                    self._block = self._longer(self._offset + missing)
                piece = self._block[self._offset : self._offset + missing]
                self._offset += len(piece)
                missing -= len(piece)
                pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _longer(self, nbytes: int) -> bytes:
        """The first ``nbytes`` or more of the block: most streams are read only a little, few to the end of a block."""
        size = min(CHUNK_BYTES, 1 << max(nbytes - 1, 127).bit_length())
        return _expand(b"block", self._key, self._index.to_bytes(8, "little"), size)

    def spawn(self, *name: int | str) -> KeyedSource:
        """An independent stream for one part of the work, the same for the same key and name.

        Args:
            name: whole numbers and strings that name the part.
        """
        elements = tuple(e if isinstance(e, str) else operator.index(e) for e in name)
        return KeyedSource(_expand(b"spawn", self._key, repr(elements).encode(), 32))

    def __repr__(self) -> str:
        return "<KeyedSource(key hidden)>"


def _expand(domain: bytes, key: bytes, message: bytes, nbytes: int) -> bytes:
    # Domain names have one length and the key has 32 bytes, so the concatenation can be read in one way only.
    return hashlib.shake_256(domain + key + message).digest(nbytes)
