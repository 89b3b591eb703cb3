"""Draws per second of the exact discrete laws, beside OpenDP, diffprivlib and numpy's insecure geometrics.

``python benchmarks/noise.py [--json FILE]``. One thread, in seconds of its processor, so that others count less. Our
times include the making of the bits, by key as in a release, by the operating system or from a seed, and the
writing of the result. OpenDP and diffprivlib take part if they are installed. With ``--compiled`` that is left out:
what the compiled look-up gains over numpy's, in turn, and what a process takes that draws once.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from record import save

from topdown.noise import DiscreteGaussian, DiscreteLaplace, KeyedSource, SecureSource, SeededSource
from topdown.noise.exact import threshold_tables
from topdown.noise.key import NoiseKey, NoiseStreams, chunks

SCALES = (1, 10, 100, 10_000)
OURS = "topdown, by key"
FIRST_DRAWS = (100_000, 1_000_000, 8_000_000, 64_000_000)
Draw = Callable[[int], object]


def opendp_samplers(law: str, scale: int) -> dict[str, Draw]:
    try:
        import opendp.prelude as dp
    except ImportError:
        return {}
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    if law == "laplace":
        mechanism = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=float(scale))
    else:
        mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=float(scale))
    return {"OpenDP": lambda n: mechanism([0] * n)}


def diffprivlib_samplers(law: str, scale: int) -> dict[str, Draw]:
    try:
        from diffprivlib.mechanisms import GaussianDiscrete, Geometric
    except ImportError:
        return {}
    if law == "laplace":
        mechanism = Geometric(epsilon=1.0 / scale, sensitivity=1)
    else:
        mechanism = GaussianDiscrete(epsilon=1.0, delta=1e-5, sensitivity=1)
        mechanism._scale = float(scale)
    return {"diffprivlib": lambda n: [mechanism.randomise(0) for _ in range(n)]}


def numpy_samplers(law: str, scale: int) -> dict[str, Draw]:
    if law != "laplace":
        return {}
    rng = np.random.default_rng(1)
    p = -math.expm1(-1.0 / scale)
    return {"numpy geometrics, insecure": lambda n: rng.geometric(p, n) - rng.geometric(p, n)}


def our_samplers(law: str, scale: int) -> dict[str, Draw]:
    ours = DiscreteLaplace(scale) if law == "laplace" else DiscreteGaussian(scale)
    seeded, streams = SeededSource(1), NoiseKey(os.urandom(32), "configuration", "input").streams("counts")
    return {
        OURS: lambda n: by_chunks(ours, n, streams),
        "topdown, SecureSource": lambda n: ours.sample(n, SecureSource()),
        "topdown, SeededSource": lambda n: ours.sample(n, seeded),
    }


def by_chunks(law: DiscreteLaplace | DiscreteGaussian, count: int, streams: NoiseStreams) -> None:
    """``count`` draws as a release makes them: every chunk from its own stream, in the narrowest integers."""
    for index, chunk in enumerate(chunks(count, 1)):
        law.sample(chunk.stop - chunk.start, streams.stream(index), law.narrowest)


def in_turn(law: DiscreteLaplace | DiscreteGaussian, count: int = 4_000_000, rounds: int = 15) -> list[float]:
    """Median draws per second by key with numpy's look-up and with the compiled one, and their median ratio."""
    streams = NoiseKey(os.urandom(32), "configuration", "input").streams("")
    compiled = threshold_tables.kernel
    ways = [lambda: None, compiled]
    rates = []
    for _ in range(rounds + 1):
        row = []
        for way in ways:
            threshold_tables.kernel = way
            start = time.thread_time()
            by_chunks(law, count, streams)
            row.append(count / (time.thread_time() - start))
        rates.append(row)
    plain, fast = np.array(rates[1:]).T
    return [float(np.median(one)) for one in (plain, fast, fast / plain)]


def compare_look_ups() -> dict[str, float]:
    """Prints and gives what the compiled look-up gains, and what first draws take."""
    figures = {}
    print(f"{'law':10}{'scale':>8}{'numpy':>12}{'compiled':>12}{'ratio':>8}   M draws/s, by key")
    for name, law in (("laplace", DiscreteLaplace), ("gaussian", DiscreteGaussian)):
        for scale in SCALES:
            plain, fast, ratio = in_turn(law(scale))
            print(f"{name:10}{scale:8,}{plain / 1e6:12.0f}{fast / 1e6:12.0f}{ratio:8.2f}")
            figures |= {f"{name}, scale {scale}, compiled by numpy": ratio}
    for count in FIRST_DRAWS:
        took = first_draw(count)
        print(f"first draw of {count:12,}{took * 1e3:10.0f} ms")
        figures |= {f"first draw of {count}, seconds": took}
    return figures


def first_draw(count: int) -> float:
    """Seconds of a new process's processor for ``count`` draws, once `topdown.noise` is loaded; median of five."""
    said = (
        "import time; from topdown.noise import DiscreteLaplace, SeededSource; source = SeededSource(1); "
        f"law = DiscreteLaplace(10); start = time.process_time(); law.sample({count}, source); "
        "print(time.process_time() - start)"
    )
    command = [sys.executable, "-c", said]
    return statistics.median(float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(5))


def draws_per_second(draw: Draw, seconds: float = 0.5, rounds: int = 5) -> float:
    """Median rate over ``rounds`` runs, each at most about ``seconds`` long (16 million draws at most)."""
    draw(1)
    count = 500
    while True:
        start = time.thread_time()
        draw(count)
        took = time.thread_time() - start
        if took > seconds / 4 or count >= 16_000_000:
            break
        count = min(4 * count, 16_000_000)
    rates = []
    for _ in range(rounds):
        start = time.thread_time()
        draw(count)
        rates.append(count / (time.thread_time() - start))
    return statistics.median(rates)


def bytes_per_second(read: Callable[[int], bytes]) -> float:
    start = time.thread_time()
    for _ in range(800):
        read(128 * 1024)
    return 800 * 128 * 1024 / (time.thread_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--compiled", action="store_true", help="what the compiled look-up gains, and nothing else")
    arguments = parser.parse_args()
    if arguments.compiled:
        figures = compare_look_ups()
        if arguments.json:
            save("noise-compiled", figures, arguments.json)
        return

    sources = {"os.urandom": os.urandom, "SecureSource": SecureSource().read}
    sources |= {"KeyStream": NoiseKey(os.urandom(32), "", "").streams("").stream().read}
    sources |= {"KeyedSource": KeyedSource.fresh().read, "SeededSource": SeededSource(1).read}
    entropy = {name: bytes_per_second(read) for name, read in sources.items()}
    for name, rate in entropy.items():
        print(f"{name:28}{rate / 1e6:12,.0f} MB/s")

    rows = []
    print(f"\n{'law':10}{'scale':>8}  {'sampler':28}{'M draws/s':>12}{'topdown is':>14}")
    for law in ("laplace", "gaussian"):
        for scale in SCALES:
            samplers = our_samplers(law, scale)
            for others in (opendp_samplers, diffprivlib_samplers, numpy_samplers):
                samplers |= others(law, scale)
            rates = {name: draws_per_second(draw) for name, draw in samplers.items()}
            ours = rates[OURS]
            for name, rate in rates.items():
                print(f"{law:10}{scale:8,}  {name:28}{rate / 1e6:12.2f}{ours / rate:12.1f} x")
                row = {"law": law, "scale": scale, "sampler": name, "draws_per_second": rate, "ratio": ours / rate}
                rows.append(row)
    if arguments.json:
        figures = {f"{name}, bytes a second": speed for name, speed in entropy.items()}
        figures |= {f"{row['law']}, scale {row['scale']}, {row['sampler']}": row["draws_per_second"] for row in rows}
        save("noise", figures, arguments.json)


if __name__ == "__main__":
    main()
