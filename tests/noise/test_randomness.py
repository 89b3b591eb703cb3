"""Where random bits come from: repeatability, independence of streams, what a source reveals, how fast it is."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import topdown as td
from topdown.errors import ConfigError
from topdown.geography.tree import Tree
from topdown.noise import KeyedSource, SecureSource, SeededSource, Source
from topdown.noise.randomness import CHUNK_BYTES, uint16, uint64, uniform
from topdown.projection.cells.integer_optimum import round_whole_tree
from topdown.projection.cells.rounding import round_top_down
from topdown.research.pmse.generators import numpy_generator

KEY = bytes(range(32))


@pytest.mark.parametrize("source", [SecureSource(), SeededSource(1), KeyedSource(KEY)], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("nbytes", [0, 1, 7, 1000, CHUNK_BYTES, 2 * CHUNK_BYTES + 3])
def test_read_gives_as_many_bytes(source: Source, nbytes: int) -> None:
    got = source.read(nbytes)
    assert type(got) is bytes
    assert len(got) == nbytes
    if nbytes >= 1000:
        # Set bits are binomial; eight standard deviations.
        ones = int(np.unpackbits(np.frombuffer(got, np.uint8)).sum())
        assert abs(ones - 4 * nbytes) < 8 * np.sqrt(2 * nbytes)
        assert source.read(nbytes) != got


def test_fit_for_release() -> None:
    assert SecureSource().fit_for_release
    assert KeyedSource(KEY).fit_for_release
    assert not SeededSource(1).fit_for_release
    assert "not for release" in repr(SeededSource(1))


def test_seeded_streams_repeat_and_differ() -> None:
    assert SeededSource(7).read(64) == SeededSource((7,)).read(64) == SeededSource(np.int64(7)).read(64)  # type: ignore[arg-type]
    names = [7, 8, -7, (7, 0), (7, 0, 0), (0, 7), (7 + (1 << 32),), (7, "a"), ("7",), (1 << 200, 3)]
    assert len({SeededSource(name).read(16) for name in names}) == len(names)  # type: ignore[arg-type]
    used = SeededSource(7)
    used.read(1000)
    assert used.spawn(3, 4).read(64) == SeededSource((7, 3, 4)).read(64)
    assert used.read(8) == SeededSource(7).read(1008)[1000:]


def test_seeded_stream_is_pinned() -> None:
    """A study's numbers must not change with a release of this package."""
    assert SeededSource(7).read(8).hex() == "f3c6bf4aa2b9a5bc"
    assert SeededSource((7, "block", 2)).read(8).hex() == "67964c069223d769"


@pytest.mark.parametrize("seed", [1.5, None, b"x", (1, 2.5), [1]])
def test_bad_seeds(seed: object) -> None:
    with pytest.raises(ConfigError, match="seed"):
        SeededSource(seed)  # type: ignore[arg-type]


def test_seeded_source_survives_pickling() -> None:
    source = SeededSource((3, 1))
    source.read(80)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(24) == source.read(24)
    assert copy.name == (3, 1)


def test_keyed_stream_is_shake256_however_it_is_cut() -> None:
    import hashlib

    block = [hashlib.shake_256(b"block" + KEY + i.to_bytes(8, "little")).digest(CHUNK_BYTES) for i in range(3)]
    expected = b"".join(block)
    assert KeyedSource(KEY).read(3 * CHUNK_BYTES) == expected
    cut = KeyedSource(KEY)
    sizes = [1, 0, 5, CHUNK_BYTES - 7, 100, CHUNK_BYTES + 50, 3]
    assert b"".join(cut.read(n) for n in sizes) == expected[: sum(sizes)]


def test_keyed_source_keeps_its_key() -> None:
    source = KeyedSource.fresh()
    assert len(source.key) == 32
    assert source.key != KeyedSource.fresh().key
    shown = repr(source) + str(source)
    assert source.key.hex() not in shown
    assert repr(source.key) not in shown
    with pytest.raises(TypeError):
        pickle.dumps(source)
    assert KeyedSource(source.key).read(99) == source.read(99)
    assert KeyedSource(KEY).spawn(1).read(9) == KeyedSource(KEY).spawn(1).read(9)
    assert len({KeyedSource(KEY).spawn(*n).read(16) for n in ((), (1,), (2,), (1, 0), ("1",))}) == 5
    for bad in (b"short", bytes(33), "a" * 32, None):
        with pytest.raises(ConfigError, match="key"):
            KeyedSource(bad)  # type: ignore[arg-type]


def test_threads_never_share_bytes() -> None:
    """Eight threads on one keyed stream: every 16-byte piece is handed out once."""
    source = KeyedSource(KEY)
    start = threading.Barrier(8)

    def many(_: int) -> list[bytes]:
        start.wait()
        return [source.read(16) for _ in range(2000)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change places as often as the interpreter lets them
    try:
        with ThreadPoolExecutor(8) as pool:
            pieces = [piece for part in pool.map(many, range(8)) for piece in part]
    finally:
        sys.setswitchinterval(interval)
    stream = KeyedSource(KEY).read(16 * 16_000)
    assert sorted(pieces) == sorted(stream[i : i + 16] for i in range(0, len(stream), 16))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork() -> None:
    """The child of a fork gets fresh entropy from the system and is refused by a keyed stream."""
    secure, keyed = SecureSource(), KeyedSource(KEY)
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            keyed.read(1)
            refused = b"0"
        except RuntimeError:
            refused = b"1"
        os.write(there, refused + secure.read(16))
        os._exit(0)
    got = os.read(here, 17)
    os.waitpid(child, 0)
    os.close(here)
    os.close(there)
    assert got[:1] == b"1"
    assert got[1:] != secure.read(16)


class Fixed:
    fit_for_release = False

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, nbytes: int) -> bytes:
        assert nbytes == len(self.data)
        return self.data


def test_integers_and_uniforms_from_chosen_bytes() -> None:
    assert uint16(Fixed(b"\x01\x02\xff\xff"), 2).tolist() == [0x0201, 0xFFFF]
    assert uint64(Fixed(bytes(7) + b"\x80"), 1).tolist() == [1 << 63]
    zero, one = uniform(Fixed(bytes(8) + b"\xff" * 8), 2)
    assert zero == 2.0**-53
    assert one == 1 - 2.0**-53
    below, above = uniform(Fixed(b"\xff" * 7 + b"\x7f" + bytes(7) + b"\x80"), 2)
    assert below == 0.5 - 2.0**-53
    assert above == 0.5 + 2.0**-53


def test_uniforms_are_uniform() -> None:
    u = uniform(SeededSource(3), 200_000)
    counts = np.bincount((u * 64).astype(int), minlength=64)
    assert ((counts - 3125.0) ** 2 / 3125.0).sum() < 200
    wrong = np.bincount((u**1.1 * 64).astype(int), minlength=64)
    assert ((wrong - 3125.0) ** 2 / 3125.0).sum() > 200
    # Every one of the 52 random bits is set half of the time.
    bits = (u * 2.0**53).astype(np.uint64)
    share = [float(((bits >> np.uint64(i)) & np.uint64(1)).mean()) for i in range(1, 53)]
    assert np.abs(np.array(share) - 0.5).max() < 0.01


class Short:
    """A stream from a seed that stops short, or goes on too long, at the ``at``-th read."""

    fit_for_release = False

    def __init__(self, at: int, wrong: Callable[[bytes], object]) -> None:
        self.stream, self.at, self.wrong = SeededSource(11), at, wrong

    def read(self, nbytes: int) -> bytes:
        self.at -= 1
        data = self.stream.read(nbytes)
        return self.wrong(data) if self.at < 0 and nbytes else data  # type: ignore[return-value]


WRONG: dict[str, Callable[[bytes], object]] = {
    "one byte too few": lambda data: data[:-1],
    "half": lambda data: data[: len(data) // 2],
    "one word": lambda data: data[:2] if len(data) > 2 else b"",
    "nothing": lambda data: b"",
    "one byte too many": lambda data: data + b"\0",
    "text": lambda data: "0" * len(data),
}
READERS: dict[str, Callable[[Source], object]] = {
    "discrete Laplace": lambda source: td.noise.DiscreteLaplace(3).sample(1000, source),
    "discrete Laplace, wide": lambda source: td.noise.DiscreteLaplace(10**6).sample(1000, source),
    "discrete Gaussian, wide": lambda source: td.noise.DiscreteGaussian(10**6).sample(1000, source),
    "on a grid": lambda source: td.noise.DiscreteLaplace(3, grid_bits=10).sample(1000, source),
    "Laplace": lambda source: td.noise.Laplace(3).sample(1000, source),
    "truncated": lambda source: td.noise.TruncatedLaplace(1.0, 3.0, 0.0, 9.0).sample(1000, source),
    "truncated integers": lambda source: td.noise.TruncatedDiscreteLaplace(1, 3, 0, 9).sample(1000, source),
    "normalised": lambda source: td.noise.NormalizedLaplace(1.0, 3.0, [(None, 0.0)]).sample(1000, source),
    "rounding": lambda source: round_top_down(HALVES, PAIRS, source, None, None),
    "rounding the whole tree": lambda source: round_whole_tree(HALVES, PAIRS, source),
    "a generator": numpy_generator,
}
PAIRS = Tree.from_family_sizes([[8], [2] * 8])
HALVES = PAIRS.aggregate(np.full((1, 16), 0.5))


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("reader", READERS)
def test_a_source_that_returns_another_number_of_bytes_is_refused(reader: str, wrong: str) -> None:
    """Whichever of its reads it is: one word in place of a thousand would be the noise of a thousand counts."""
    READERS[reader](Short(10**9, WRONG[wrong]))
    for at in range(3):
        source = Short(at, WRONG[wrong])
        needed = Short(10**9, WRONG[wrong])
        READERS[reader](needed)
        if 10**9 - needed.at <= at:
            continue  # so many reads are not made
        with pytest.raises(ConfigError, match=r"Short: read\(\d+\) returned .* share noise"):
            READERS[reader](source)


CONTINUOUS = [
    td.noise.Laplace(1),
    td.noise.Gaussian(1),
    td.noise.TruncatedLaplace(1.0, 1.0, 0.0, 2.0),
    td.noise.BoundaryInflatedLaplace(1.0, 1.0, 0.0, 2.0),
    td.noise.NormalizedLaplace(1.0, 1.0, [(None, 0.0)]),
]


@pytest.mark.parametrize("law", CONTINUOUS, ids=lambda law: type(law).__name__)
@pytest.mark.parametrize("source", [SecureSource(), KeyedSource(KEY)], ids=lambda s: type(s).__name__)
def test_a_continuous_law_refuses_a_source_for_releases(law: Any, source: Source) -> None:
    assert law.fit_for_release is False
    with pytest.raises(ConfigError, match=r"gaps .* true value.*DiscreteLaplace.*SeededSource"):
        law.sample(3, source)
    assert np.isfinite(law.sample(3, SeededSource(1))).all()
