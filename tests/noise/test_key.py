"""Noise by key: streams by name, bound to a configuration and an input, and the draws made from them."""

from __future__ import annotations

import copy
import hashlib
import hmac
import itertools
import pickle

import numpy as np
import pytest

from topdown.errors import ConfigError
from topdown.noise import DiscreteGaussian, DiscreteLaplace
from topdown.noise.key import NoiseKey, chunks
from topdown.noise.randomness import CHUNK_BYTES, read_exactly

SECRET = bytes(range(32))
KEY = NoiseKey(SECRET, "configuration", "input")
NUMBERS = "the numbers' code"
STREAMS = KEY.streams(NUMBERS)


def test_a_stream_is_aes_256_in_counter_mode() -> None:
    """NIST SP 800-38A, F.5.5, whose counter begins elsewhere: the block cipher itself is asked for every block."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    of_numbers = b'["topdown",2,"configuration","input","streams","the numbers\' code"]'
    own = hmac.digest(SECRET, of_numbers, hashlib.sha256)
    key = hmac.digest(own, b'["topdown",2,"stream","county","detailed",3]', hashlib.sha256)
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # nosec B305 # one block after the other
    expected = b"".join(block.update(count.to_bytes(16, "big")) for count in range(1000))
    assert STREAMS.stream("county", "detailed", 3).read(16_000) == expected


def test_the_streams_are_pinned() -> None:
    """Another stream, or other draws from it, under the same name would be a second noise on the same counts: then
    STREAMS_VERSION is another, and releases that were begun under this one are refused.
    """
    stream = STREAMS.stream("county", "detailed", 3)
    assert stream.read(8).hex() == "71fe54596e2f3681"
    drawn = DiscreteLaplace(10).sample(100_000, STREAMS.stream("laplace"))
    assert (
        hashlib.sha256(drawn.tobytes()).hexdigest()
        == "e37d79ff21304b551c75429ee14a57be0dfaba1718024c1eec534fc97fbf27f4"
    )
    drawn = DiscreteGaussian(1000).sample(100_000, STREAMS.stream("gaussian"))
    assert (
        hashlib.sha256(drawn.tobytes()).hexdigest()
        == "96003dc33d2c63dd295768f8a29dd0fbe20439ab6245f9a977977c439a05e208"
    )
    assert list(itertools.islice(chunks(10**6, 2016), 2)) == [slice(0, 130), slice(130, 260)]


def test_a_stream_does_not_depend_on_how_it_is_cut() -> None:
    whole = STREAMS.stream("a").read(3 * CHUNK_BYTES)
    cut = STREAMS.stream("a")
    sizes = [1, 0, 5, CHUNK_BYTES, 100, CHUNK_BYTES - 7, 3]
    assert b"".join(read_exactly(cut, n) for n in sizes) == whole[: sum(sizes)]


def test_everything_in_its_name_makes_another_stream() -> None:
    """The secret, the configuration, the input, the numbers, and every part of the name; and no two lists of words are
    one name.
    """
    keys = [KEY, NoiseKey(bytes(32), "configuration", "input")]
    keys += [NoiseKey(SECRET, *bound) for bound in (("other", "input"), ("configuration", "other"))]
    keys += [NoiseKey(SECRET, *bound) for bound in (("configurationinput", ""), ("", "configurationinput"))]
    names: list[tuple[int | str, ...]] = [
        (), ("a",), ("a", 0), ("a", 0, 1), ("a", "0"), ("a,0",), ('a","0',), ("a", 1), (1, "a"), ("a0",), ("\u00e4",),
    ]  # fmt: skip
    found = [key.streams(one).stream(*name).read(32) for key in keys for one in ("n", "m", "") for name in names]
    assert len(set(found)) == 3 * len(keys) * len(names)
    assert len({KEY.derive(*name) for name in names}) == len(names)
    assert KEY.derive("streams", "a") != KEY.derive("a")


def test_a_code_is_hmac_sha256_of_every_array() -> None:
    values = np.arange(6, dtype="<i2").reshape(3, 2)
    said = b'["a", "<i2", [2, 3]]' + values.T.tobytes() + b'[["b", 1], "|u1", [2]]' + b"\x03\x04"
    named = [("a", values), (["b", 1], np.array([3, 4], np.uint8))]
    expected = hmac.new(KEY.derive("code", "counts"), said, hashlib.sha256).hexdigest()
    assert KEY.code("counts", named) == expected
    others = [
        KEY.code("others", named), KEY.code("counts", named[:1]), KEY.code("counts", named[::-1]),
        KEY.code("counts", [("a", values.T), named[1]]), KEY.code("counts", [("a", values.astype(np.int32)), named[1]]),
        KEY.code("counts", [("c", values), named[1]]), KEY.code("counts", [("a", values + 1), named[1]]),
        NoiseKey(bytes(32), "configuration", "input").code("counts", named),
        NoiseKey(SECRET, "configuration", "other").code("counts", named), STREAMS.code("counts", named),
    ]  # fmt: skip
    assert len({expected, *others}) == 11


def test_a_stream_looks_random() -> None:
    ones = np.unpackbits(np.frombuffer(STREAMS.stream("b").read(1 << 20), np.uint8)).reshape(-1, 8).sum(axis=0)
    # Set bits are binomial; eight standard deviations.
    assert (np.abs(ones - 2.0**19) < 8 * 2.0**9).all()


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33), "0" * 32, bytearray(32)], ids=range(5))
def test_a_secret_of_another_size_is_refused(secret: bytes) -> None:
    with pytest.raises(ConfigError, match="32 secret bytes"):
        NoiseKey(secret, "c", "i")


def test_it_shows_nothing_and_goes_nowhere() -> None:
    secret = b"thirty-two letters of one secret"
    key = NoiseKey(secret, "the configuration", "the input")
    streams = key.streams("of the numbers")
    for one in (key, streams, streams.stream("a")):
        said = f"{one!r} {one!s} {[one]}"
        shown = ("thirty", secret.hex(), repr(secret), key.derive("a").hex(), "input", "numbers")
        assert not any(part in said for part in shown)
        for send in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                send(one)


def test_chunks_cover_a_level_once() -> None:
    for n_nodes, n_answers in ((1, 1), (262_144, 1), (262_145, 1), (1000, 2016), (3, 1 << 30)):
        found = list(chunks(n_nodes, n_answers))
        assert [part.start for part in found] == [0, *(part.stop for part in found[:-1])]
        assert found[-1].stop == n_nodes
        assert all((part.stop - part.start) * n_answers <= max(1 << 18, n_answers) for part in found)


@pytest.mark.parametrize(("law", "narrowest"), [
    (DiscreteLaplace(10), np.int16), (DiscreteLaplace(255), np.int16), (DiscreteLaplace(256), np.int32),
    (DiscreteGaussian(10), np.int16), (DiscreteGaussian(250), np.int16), (DiscreteGaussian(300), np.int32),
    (DiscreteLaplace(10**7), np.int32), (DiscreteLaplace(10**8), np.int64), (DiscreteGaussian(10**8), np.int64),
])  # fmt: skip
def test_narrow_draws_are_the_same_numbers(law: DiscreteLaplace | DiscreteGaussian, narrowest: type) -> None:
    assert law.narrowest == narrowest
    wide = law.sample(70_000, STREAMS.stream("c"))
    assert wide.dtype == np.int64
    for kind in (np.int16, np.int32, np.int64):
        if np.dtype(kind).itemsize >= law.narrowest.itemsize:
            narrow = law.sample(70_000, STREAMS.stream("c"), kind)
            assert narrow.dtype == kind
            assert np.array_equal(narrow, wide)
        else:
            with pytest.raises(ConfigError, match=f"draws of this law need {law.narrowest}"):
                law.sample(3, STREAMS.stream("c"), kind)
    with pytest.raises(ConfigError, match="draws of this law need"):
        law.sample(3, STREAMS.stream("c"), np.float64)


def test_on_a_grid_draws_are_float64() -> None:
    law = DiscreteLaplace(3, grid_bits=10)
    assert law.narrowest == np.float64
    assert np.array_equal(law.sample(9, STREAMS.stream("d"), law.narrowest), law.sample(9, STREAMS.stream("d")))
    with pytest.raises(ConfigError, match="float64"):
        law.sample(9, STREAMS.stream("d"), np.int64)
