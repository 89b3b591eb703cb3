"""Noise by address: the draw of every (node, answer) follows from its address alone.

A stream gives its draws one after the other; of a million answers a node it would have to be drawn whole. Here the bits
of a draw are AES-256 of its address as one block (FIPS 197), under a key that a level's query has for itself: blocks
differ, and without the key nobody can distinguish what they become from independent random bits. So a draw is the
same whatever else is drawn, in whatever order, and it can be made where it is used. The law is drawn by inversion
(`threshold_tables`): the time that it takes depends on the bits, not on the counts, and nothing is rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.noise.exact.discrete import DiscreteGaussian, DiscreteLaplace
from topdown.noise.exact.threshold_tables import announce, decided, table

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

IntArray = npt.NDArray[np.int64]

MOST_ANSWERS = 1 << 48
"""Answers are numbered below this: 48 bits of a block, beside 16 for the number of the block at an address."""

LARGEST_SIGMA, LARGEST_SCALE = 3000, 700
"""The widest laws, discrete Gaussian and Laplace, whose table has entries of 16 bits."""

_AT_ONCE = 1 << 16
_BLOCKS = 1 << 16


def require_addressable(law: object) -> DiscreteGaussian | DiscreteLaplace:
    """``law``, if it is drawn by address. Raises `ConfigError` for one that is not on the integers, and for a very wide
    one."""
    if not isinstance(law, (DiscreteGaussian, DiscreteLaplace)) or law.grid_bits:
        raise ConfigError(
            "noise by address is drawn on the integers; take the mechanism 'geometric' or 'discrete-gaussian'"
        )
    if isinstance(law, DiscreteGaussian):
        name, width, most = "sigma", float(law.sigma2) ** 0.5, LARGEST_SIGMA
    else:
        name, width, most = "scale", float(law.scale), LARGEST_SCALE
    if width > most:
        raise ConfigError(
            f"noise with a {name} of {width:,.7g} is too wide to be drawn by address (at most {most:,}); give it a "
            "larger budget, or a share of 0 to leave it out"
        )
    return law


class AddressedNoise:
    """Independent draws of ``law``, one at every (node, answer), under a ``key`` of 32 secret bytes that is used for
    nothing else. Raises `ConfigError` as `require_addressable` does."""

    __slots__ = ("_cipher", "_table")

    fit_for_release: ClassVar[bool] = True

    def __init__(self, key: bytes, law: DiscreteGaussian | DiscreteLaplace) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        require_addressable(law)
        self._cipher = Cipher(algorithms.AES256(key), modes.ECB())  # nosec B305 # no two addresses are equal, so no two blocks are
        self._table = table(law.tails)

    def draw(self, nodes: npt.ArrayLike, answers: npt.ArrayLike) -> npt.NDArray[np.int16]:
        """The draws at ``nodes`` and ``answers``, whole numbers of 0 or more that are broadcast together; in their
        shape."""
        at, among = np.broadcast_arrays(np.asarray(nodes, np.int64), np.asarray(answers, np.int64))
        if at.size and (at.min() < 0 or among.min() < 0 or among.max() >= MOST_ANSWERS):
            raise ConfigError(f"an address is a node from 0 on and an answer from 0 to below {MOST_ANSWERS:,}")
        drawn = np.empty(at.shape, np.int16)
        flat, node, answer = drawn.reshape(-1), at.reshape(-1), among.reshape(-1)
        announce(flat.size)
        encryptor = self._cipher.encryptor()  # one a call, since threads may not share it
        for start in range(0, flat.size, _AT_ONCE):
            here = slice(start, start + _AT_ONCE)
            own = _Addresses(encryptor, node[here], answer[here])
            flat[here] = decided(self._table, own.words(), own.later)
        return drawn

    def __reduce__(self) -> NoReturn:
        raise TypeError("noise by address cannot be pickled: derive its key again where it is needed")

    def __repr__(self) -> str:
        return "<AddressedNoise(key hidden)>"


class _Addresses:
    """The random bits at some addresses: block k of an address has its bits from 128 k on."""

    def __init__(self, cipher: CipherContext, nodes: IntArray, answers: IntArray) -> None:
        self._cipher, self._nodes, self._answers = cipher, nodes, answers
        self._made: npt.NDArray[np.uint64] | None = None

    def words(self) -> npt.NDArray[np.uint64]:
        """The first 64 bits of every address."""
        blocks = np.empty((len(self._nodes), 2), "<u8")
        blocks[:, 0], blocks[:, 1] = self._nodes, self._answers
        self._made = np.frombuffer(self._cipher.update(blocks.tobytes()), "<u8").reshape(-1, 2)
        return np.ascontiguousarray(self._made[:, 0], np.uint64)

    def later(self, place: int) -> _Later:
        """The bits of one address after its first 64."""
        assert self._made is not None  # nosec B101 # narrows a type: words() comes first
        first = self._made[place, 1:].astype("<u8").tobytes()
        return _Later(self._cipher, int(self._nodes[place]), int(self._answers[place]), first)


class _Later:
    """A source of the bits of one address: ``first``, then its further blocks."""

    fit_for_release: ClassVar[bool] = True

    def __init__(self, cipher: CipherContext, node: int, answer: int, first: bytes) -> None:
        self._cipher, self._node, self._answer, self._bytes, self._block = cipher, node, answer, first, 0

    def read(self, nbytes: int) -> bytes:
        """The next bytes. Raises `OverflowError` after 8 million bits, which no draw has ever needed."""
        while len(self._bytes) < nbytes:
            self._block += 1
            if self._block == _BLOCKS:
                raise OverflowError("the bits of an address are used up")
            block = np.array([self._node, self._block << 48 | self._answer], "<u8")
            self._bytes += self._cipher.update(block.tobytes())
        found, self._bytes = self._bytes[:nbytes], self._bytes[nbytes:]
        return found
