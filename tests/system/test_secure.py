"""What cannot happen quietly: seeds in a release, continuous noise, confidential values where others look."""

from __future__ import annotations

import io
import logging
import os
import secrets
import stat
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.command import topdown_command
from support.places import RUN_TOML
from topdown import errors
from topdown.confidential.bound_streams import code_of_counts
from topdown.config import load_config
from topdown.errors import ConfigError, TopdownError
from topdown.machine.progress import Silent
from topdown.measurements.measurements import Measurements
from topdown.noise.key import NoiseKey
from topdown.pipeline import derive, draw
from topdown.pipeline import run as pipeline
from topdown.privacy.ledger import Ledger

SECRETS = (987_654_321, 123_456_789)
"""True counts of one state, whose sum is the total."""

FORMS = [
    form for value in (*SECRETS, sum(SECRETS)) for form in (str(value), f"{value:,}", f"{value}.0", f"{value:.6e}")
]
BYTES = [np.array([value], kind).tobytes() for value in (*SECRETS, sum(SECRETS)) for kind in ("<i8", "<f8")]


def shows(text: str) -> bool:
    return any(form in text for form in FORMS)


def holds(data: bytes) -> bool:
    return shows(data.decode("latin-1")) or any(form in data for form in BYTES)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A run on counts that are easily recognised, with noise that hides them."""
    rows = "county,adults,children\n01001,987654321,0\n01003,123456789,5\n"
    (tmp_path / "table.csv").write_text(rows)
    Ledger(tmp_path / "ledger.db").open_account("census", 1)
    path = tmp_path / "run.toml"
    text = RUN_TOML.replace("epsilon = 1.0", 'epsilon = "1/10000"')
    path.write_text(text + '[projection]\ncross_check = false\n[ledger]\npath = "ledger.db"\ndataset = "census"\n')
    return path


# -- where randomness comes from ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["seed", "random_seed", "rng_seed", "Seed", "noise-seed"])
@pytest.mark.parametrize("section", ["", "[input]", "[geography]", "[privacy]", "[projection]", "[output]", "[ledger]"])
def test_a_seed_is_refused_wherever_it_stands(planted: Path, section: str, key: str) -> None:
    text = planted.read_text()
    line = f'"{key}" = 1\n'
    planted.write_text(line + text if not section else text.replace(section, f"{section}\n{line}"))
    if section == "[output]":
        planted.write_text(text + f"[output]\n{line}")
    with pytest.raises(ConfigError, match=r"(?i)seed.*has no seed, which would reveal the noise"):
        load_config(planted)
    assert topdown_command("run", planted) == 2


def test_a_release_draws_from_a_secret_of_the_operating_system(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    measure = draw.measure

    def watched(counts: td.Counts, plan: td.Plan, source: Any, *, workers: int | None = None) -> Measurements:
        drawn.append(source)
        return measure(counts, plan, source, workers=workers)

    def token_bytes(count: int) -> bytes:
        asked.append(count)
        return os.urandom(count)

    asked: list[int] = []
    monkeypatch.setattr(secrets, "token_bytes", token_bytes)
    monkeypatch.setattr(draw, "measure", watched)
    pipeline.run(load_config(planted))
    assert [type(source) for source in drawn] == [NoiseKey]
    assert asked == [32]


def test_two_releases_have_different_noise(planted: Path) -> None:
    config = load_config(planted)
    Ledger(planted.parent / "ledger.db").open_account("again", 1)
    pipeline.run(config)
    planted.write_text(planted.read_text().replace('"census"', '"again"'))
    other = pipeline.run(load_config(planted), planted.parent / "other").public
    first = pq.read_table(config.output_path / "public" / "measurements.parquet")["value"].to_numpy()
    assert (first != pq.read_table(other / "measurements.parquet")["value"].to_numpy()).all()


# -- which laws are drawn -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["geometric", "laplace", "discrete-gaussian", "gaussian"])
@pytest.mark.parametrize("bits", [0, 1, 10, 32])
def test_what_is_measured_lies_on_the_grid(mechanism: str, bits: int, counts: td.Counts) -> None:
    budget = {"epsilon": 1} if mechanism in {"geometric", "laplace"} else {"rho": 1}
    plan = td.Plan(mechanism, grid_bits=bits, **budget).for_levels(counts.geography.levels)
    for level in plan.levels:
        law = plan.law(level)
        assert type(law) in {td.noise.DiscreteLaplace, td.noise.DiscreteGaussian}
    values = td.measure(counts, plan).values
    step = 2.0 ** -(bits if mechanism in {"laplace", "gaussian"} else 0)
    assert (np.asarray(values / step) % 1 == 0).all()
    if step == 1:
        assert np.issubdtype(values.dtype, np.int64) or (values == np.rint(values)).all()


def test_a_continuous_law_says_that_it_is_not_for_release() -> None:
    for law in (td.noise.Laplace(1), td.noise.Gaussian(1)):
        assert law.fit_for_release is False
    for name in ("TruncatedLaplace", "BoundaryInflatedLaplace"):
        assert getattr(td.noise, name).fit_for_release is False


def test_what_a_seed_made_is_marked_to_the_end(counts: td.Counts) -> None:
    measurements = td.measure(counts, td.Plan(epsilon=1), td.SeededSource(1))
    release = td.round_counts(td.project(measurements, "gls-top-down", nonnegative=True))
    assert not release.fit_for_release
    sound = td.project(td.measure(counts, td.Plan(epsilon=1)), "gls-top-down", nonnegative=True)
    assert td.round_counts(sound).fit_for_release
    assert not td.round_counts(sound, source=td.SeededSource(1)).fit_for_release


# -- where confidential values must not be --------------------------------------------------------------------------


def test_the_search_finds_what_it_looks_for(planted: Path) -> None:
    assert holds((planted.parent / "table.csv").read_bytes())
    assert holds(b"total 987,654,321 ")
    assert holds(np.array([1, sum(SECRETS)]).tobytes())
    assert holds(np.array([float(SECRETS[1])]).tobytes())
    assert not holds(b"123456788")


def test_nothing_but_the_input_holds_a_true_count(planted: Path) -> None:
    seen: list[str] = []

    class Looking(Silent):
        """Looks at every file that exists while the run is at work."""

        @contextmanager
        def stage(self, title: str) -> Iterator[None]:
            self.look()
            yield
            self.look()

        def look(self) -> None:
            for path in planted.parent.rglob("*"):
                if path.is_file() and path.name != "table.csv":
                    seen.append(path.name)
                    assert not holds(path.read_bytes()), path

    public = pipeline.run(load_config(planted), stages=Looking()).public
    assert {"draw.json", "key", "ledger.db"} <= set(seen)
    for path in planted.parent.rglob("*"):
        if path.is_file() and path.name != "table.csv":
            assert not holds(path.read_bytes()), path
    for path in public.glob("*.parquet"):
        file = pq.ParquetFile(path)
        table = file.read()
        for column in table.columns:
            if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
                assert not holds(np.ascontiguousarray(column.to_numpy()).tobytes())
        for group in range(file.metadata.num_row_groups):
            for k in range(file.metadata.num_columns):
                statistics = file.metadata.row_group(group).column(k).statistics
                assert statistics is None or not shows(str(statistics.to_dict()))
        assert not shows(str(file.schema_arrow.metadata))


def test_no_temporary_file_is_made_elsewhere(planted: Path) -> None:
    script = (
        "import sys\n"
        "opened = []\n"
        "def watch(event, arguments):\n"
        "    if event == 'open' and isinstance(arguments[0], (str, bytes)):\n"
        "        mode, flags = arguments[1], arguments[2]\n"
        "        if (mode and set(mode) & set('wax+')) or (flags & 3):\n"
        "            opened.append(str(arguments[0]))\n"
        "from topdown.pipeline import run as pipeline\n"
        "from topdown.config import load_config\n"
        "sys.addaudithook(watch)\n"
        "pipeline.run(load_config(sys.argv[1]))\n"
        "print('\\n'.join(opened))\n"
    )
    environment = {**os.environ, "TMPDIR": str(planted.parent / "temporary")}
    (planted.parent / "temporary").mkdir()
    ran = subprocess.run([sys.executable, "-c", script, str(planted)], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    opened = ran.stdout.splitlines()
    assert len(opened) >= 4
    for path in opened:
        assert Path(path).is_relative_to(planted.parent / "output") or "__pycache__" in path, path
    assert not list((planted.parent / "temporary").iterdir())


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_internal_files_are_closed_to_others_whatever_the_mask(planted: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        output = pipeline.run(load_config(planted)).public.parent
    finally:
        os.umask(before)
    internal = output / "internal"
    assert stat.S_IMODE(internal.stat().st_mode) == 0o700
    files = sorted(internal.iterdir())
    assert [path.name for path in files] == ["draw.json", "key", "lock"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_folder_that_was_open_is_closed(planted: Path) -> None:
    internal = planted.parent / "output" / "internal"
    internal.mkdir(parents=True)
    internal.chmod(0o755)
    pipeline.run(load_config(planted))
    assert stat.S_IMODE(internal.stat().st_mode) == 0o700


# -- errors ---------------------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[str, str]] = {
    "a row too long": (",987654321,0", ",987654321,0,7"),
    "a row too short": (",987654321,0", ",987654321"),
    "an unclosed quote": ("01003,", '"01003,'),
    "a negative neighbour": (",123456789,5", ",123456789,-5"),
    "text beside it": (",123456789,5", ",123456789,five"),
    "a lost zero": ("01003,", "1003,"),
    "a repeated unit": ("01003,", "01001,"),
    "bytes that are no text": (",5", ",5\udcff"),
    "a unit without a code": ("01003,", ","),
    "a contradicting row": ("01001,", "01,1,5\n01001,"),
}


def whole_story(error: BaseException) -> str:
    """The traceback with every error that it is chained to, and all that each of them says."""
    text = "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        text += repr(seen) + str(seen) + repr(seen.args) + "".join(getattr(seen, "__notes__", []))
        text += str(getattr(seen, "object", ""))  # the data that a UnicodeDecodeError was about
        seen = seen.__cause__ or seen.__context__
    return text


@pytest.mark.parametrize("fault", FAULTS)
def test_no_refusal_of_a_table_tells_a_count_that_is_not_at_fault(planted: Path, fault: str) -> None:
    table = planted.parent / "table.csv"
    old, new = FAULTS[fault]
    text = table.read_text()
    assert old in text
    table.write_bytes(text.replace(old, new, 1).encode("utf-8", "surrogateescape"))
    with pytest.raises(TopdownError) as raised:
        pipeline.run(load_config(planted))
    assert not shows(whole_story(raised.value))


def every_error() -> list[type[TopdownError]]:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TopdownError)]
    assert len(found) >= 7
    return found


@pytest.mark.parametrize("kind", every_error())
@pytest.mark.parametrize(
    ("owner", "step"), [(draw, "measure"), (derive, "project"), (derive, "round_counts"), (derive, "publish")]
)
def test_an_error_of_any_class_shows_no_count_and_returns_its_code(
    planted: Path,
    kind: type[TopdownError],
    owner: Any,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*arguments: Any, **options: Any) -> None:
        # What an error of this step could tell: all that it was given, as its repr shows it.
        raise kind(f"{arguments!r} {options!r}")

    caplog.set_level(logging.DEBUG)
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, fails)
        with pytest.raises(kind) as raised:
            pipeline.run(load_config(planted), workers=1)
        assert not shows(whole_story(raised.value))
        assert topdown_command("run", planted, "--verbose") == kind.exit_code
    printed = capfd.readouterr()
    assert "error: " in printed.err
    assert "Traceback" not in printed.err
    assert not shows(printed.out + printed.err + caplog.text)


def test_a_bug_shows_no_count_either(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(derive, "round_counts", fails)
    story = io.StringIO()
    try:
        pipeline.run(load_config(planted))
    except ZeroDivisionError:
        traceback.print_exc(file=story)
    assert "a bug" in story.getvalue()
    assert not shows(story.getvalue())


def test_reprs_show_no_count(planted: Path) -> None:
    config = load_config(planted)
    prepared = draw.check(config)
    assert prepared.counts.values.max() == sum(SECRETS)
    assert not shows(f"{prepared!r} {prepared!s} {prepared.counts!r} {prepared.counts!s} {config!r}")
    assert prepared.digests.table not in repr(prepared)


def test_logs_of_every_level_show_no_count(planted: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    logging.getLogger("topdown").setLevel(0)
    assert topdown_command("run", planted, "--verbose") == 0
    assert "drawing noise" in caplog.text
    assert not shows(caplog.text)


def test_the_ledger_and_the_manifest_do_not_tell_the_input(planted: Path) -> None:
    config = load_config(planted)
    public = pipeline.run(config).public
    prepared = draw.check(config)
    digest = prepared.digests.table
    record = (public.parent / "internal" / "draw.json").read_bytes()
    assert digest.encode() in record
    for path in (*public.iterdir(), planted.parent / "ledger.db"):
        data = path.read_bytes()
        assert digest.encode() not in data
        assert bytes.fromhex(digest) not in data
    # The secret stays inside as well, and so do the keys that break ties and name the noise.
    secret = (public.parent / "internal" / "key").read_bytes()[:64]
    key = NoiseKey(bytes.fromhex(secret.decode()), config.fingerprint(), digest)
    counts = code_of_counts(prepared.counts, prepared.plan, key)
    derived = [key.derive("ties"), key.derive("code", "measurements"), key.derive("code", "counts")]
    derived += [key.derive("streams", counts), key.streams(counts).derive("stream", "county", "detailed", 0, 0)]
    for path in (*public.iterdir(), planted.parent / "ledger.db"):
        data = path.read_bytes()
        for one in (bytes.fromhex(secret.decode()), *derived):
            assert one not in data
            assert one.hex().encode() not in data


def test_a_study_is_not_written_under_public(planted: Path) -> None:
    planted.write_text(planted.read_text().partition("[ledger]")[0] + "[study]\nreplicates = 2\n")
    assert topdown_command("study", planted, "--output", planted.parent / "public" / "study") == 2
    assert not (planted.parent / "public").exists()
    assert topdown_command("run", planted) == 2
