"""Noise by address: one value per address, whatever else is drawn; its law; its bits."""

from __future__ import annotations

import hashlib
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from topdown.errors import ConfigError
from topdown.noise import DiscreteGaussian, DiscreteLaplace
from topdown.noise.addressed import AddressedNoise
from topdown.noise.exact import threshold_tables
from topdown.noise.exact.threshold_tables import decided, table
from topdown.noise.key import NoiseKey

STREAMS = NoiseKey(bytes(range(32)), "configuration", "input").streams("numbers")
KEY = STREAMS.address_key("county", "detailed")
LAWS = [DiscreteGaussian(Fraction(1, 3)), DiscreteGaussian(30), DiscreteGaussian(900), DiscreteLaplace(10)]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_law_of_the_draws(law: Any) -> None:
    drawn = AddressedNoise(KEY, law).draw(np.arange(200)[:, None], np.arange(2000)).astype(np.float64)
    edges = np.unique(np.asarray(law.ppf(np.linspace(0, 1, 41)[1:-1])))
    counts = np.histogram(drawn, np.concatenate([[-np.inf], edges + 0.5, [np.inf]]))[0]
    expected = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]])) * drawn.size
    assert stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > 1e-9
    assert abs(drawn.var() / law.variance - 1) < 0.03
    # Neighbours in nodes and in answers are uncorrelated.
    for one, other in ((drawn[1:], drawn[:-1]), (drawn[:, 1:], drawn[:, :-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 6 / np.sqrt(one.size)


def test_an_address_has_one_value_whatever_else_is_drawn_and_in_any_order() -> None:
    noise = AddressedNoise(KEY, DiscreteGaussian(30))
    whole = noise.draw(np.arange(70)[:, None], np.arange(3000))  # more than are encrypted at once
    rng = np.random.default_rng(1)
    nodes, answers = rng.integers(0, 70, 5000), rng.integers(0, 3000, 5000)
    assert np.array_equal(noise.draw(nodes, answers), whole[nodes, answers])
    assert np.array_equal(noise.draw(nodes[::-1], answers[::-1]), whole[nodes, answers][::-1])
    assert int(noise.draw(3, 17)) == whole[3, 17]
    assert np.array_equal(AddressedNoise(KEY, DiscreteGaussian(30)).draw(nodes, answers), whole[nodes, answers])


def test_threads_draw_the_same() -> None:
    noise = AddressedNoise(KEY, DiscreteGaussian(30))
    whole = noise.draw(np.arange(400)[:, None], np.arange(2000))
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda node: noise.draw(np.arange(node, node + 40)[:, None], np.arange(2000)), range(360)))
    for node, drawn in enumerate(rows):
        assert np.array_equal(drawn, whole[node : node + 40])


def test_the_loops_of_numpy_and_the_compiled_ones_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = AddressedNoise(KEY, DiscreteGaussian(30))
    found = []
    for asked in (0, threshold_tables.COMPILED_FROM):
        monkeypatch.setattr(threshold_tables, "_asked", asked)
        found.append(noise.draw(np.arange(30)[:, None], np.arange(1000)))
    assert np.array_equal(*found)


def test_another_level_query_or_secret_has_other_noise() -> None:
    law, at = DiscreteGaussian(30), (np.arange(50)[:, None], np.arange(50))
    keys = [
        KEY,
        STREAMS.address_key("county", "total"),
        STREAMS.address_key("tract", "detailed"),
        NoiseKey(bytes(range(32)), "configuration", "other input").streams("numbers").address_key("county", "detailed"),
        STREAMS.derive("stream", "county", "detailed"),
    ]
    drawn = [AddressedNoise(key, law).draw(*at).astype(np.float64).ravel() for key in keys]
    for number, one in enumerate(drawn):
        for other in drawn[:number]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.15


def test_the_bits_are_the_block_cipher_s_of_the_address() -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    noise = AddressedNoise(KEY, DiscreteGaussian(30))
    block = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()  # nosec B305
    for node, answer in ((0, 0), (5, 7), (123_456, 1_227_743)):
        bits = block.update(node.to_bytes(8, "little") + answer.to_bytes(8, "little"))
        word = int.from_bytes(bits[:8], "little")
        below = np.arange(-400, 401)
        by_inversion = below[np.asarray(DiscreteGaussian(30).cdf(below)) <= word / 2**64].max() + 1
        assert int(noise.draw(node, answer)) == by_inversion


def test_the_draws_are_pinned() -> None:
    drawn = AddressedNoise(KEY, DiscreteGaussian(30)).draw(np.arange(100)[:, None], np.arange(1000))
    digest = hashlib.sha256(drawn.astype("<i2").tobytes()).hexdigest()
    assert digest == "36f16628e9ada4af0819bdc7d53c52a65e6dadea95e08c59247a0d0584c06fd4"


def test_a_number_that_equals_a_threshold_is_decided_by_its_later_bits() -> None:
    law = table(DiscreteGaussian(30).tails)
    place = len(law.thresholds) // 2
    words = np.array([law.thresholds[place] - np.uint64(1), law.thresholds[place], law.thresholds[place]])
    asked = list[int]()

    class Bits:
        fit_for_release = False

        def __init__(self, byte: bytes) -> None:
            self.byte = byte

        def read(self, nbytes: int) -> bytes:
            return self.byte * nbytes

    def further(number: int) -> Bits:
        asked.append(number)
        return Bits(b"\x00" if number == 1 else b"\xff")

    drawn = decided(law, words, further)
    assert drawn.tolist() == [law.first + place, law.first + place, law.first + place + 1]
    assert asked == [1, 2]


def test_what_is_not_drawn_by_address_is_refused() -> None:
    for law in (DiscreteGaussian(3001), DiscreteLaplace(701)):
        with pytest.raises(ConfigError, match="too wide to be drawn by address"):
            AddressedNoise(KEY, law)
    with pytest.raises(ConfigError, match="on the integers"):
        AddressedNoise(KEY, DiscreteGaussian(3, grid_bits=2))
    noise = AddressedNoise(KEY, DiscreteGaussian(3))
    for nodes, answers in ((-1, 0), (0, -1), (0, 1 << 48)):
        with pytest.raises(ConfigError, match="an address is a node"):
            noise.draw(nodes, answers)
    assert "hidden" in repr(noise)
    with pytest.raises(TypeError):
        pickle.dumps(noise)
