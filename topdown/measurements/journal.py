"""The journal of a run, kept with the confidential data. It makes sure that noise is drawn only once.

The noise of a release is computed from its secret, its configuration, its input and the counts that are made of these
(`topdown.noise.key`); the first three are written and synced here before anything is drawn. A run that is started again
with the same configuration and the same input draws the same noise, so it reveals nothing more. To check this, a code
of the measurements under the secret is kept. A changed configuration or input is a different release and is refused.

The record ends in a seal, HMAC-SHA256 of it under the secret. A record without the right seal is damaged, or belongs to
another release, and is refused before anything is parsed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from topdown.errors import ConfigError, DataError
from topdown.machine.files import locked, make_folder, whole_file
from topdown.machine.system import sync_folder
from topdown.measurements.measurements import Measurements
from topdown.noise import KeyedSource
from topdown.noise.key import SECRET_BYTES, STREAMS_VERSION, NoiseKey
from topdown.wording import FAILED, reason, shown_path

_FILE = "draw.json"
_SECRET = "key"  # nosec B105 # the name of the file that holds it
_SEAL_LETTERS = 64
_LARGEST = 1 << 12
"""The most bytes of a record; the rest of a longer one is not read, so that its seal is wrong."""
MEASUREMENTS = "measurements"
"""The purpose of the code of all measurements (nodes x answers), by level and query; where they were made in parts, of
the code of every part and of the code of all these codes.
"""

_EARLIER = ("release", "measurements.arrow")
"""Files in which earlier versions kept the noise itself."""

_RESTORE = (
    "restore the folder from a copy: without it the same release cannot be made again, and a new one in another "
    "--output spends its budget anew"
)


class MeasuredOtherwise(DataError):
    """The measurements differ from those of an earlier run with the same noise."""


class BegunRelease(NamedTuple):
    """A release whose noise may have been drawn: its ``key``, and the code of what was ``measured``, None where no run
    got that far.

    ``cut``: for a release that was measured in parts, the number of the level where the tree was cut, and the number of
    leaves of a part, on which the code depends; else None. ``below``: the code of what parts measured later, on the way
    down, where it is not used for the units above them.
    """

    key: NoiseKey
    measured: str | None
    cut: tuple[int, int] | None = None
    below: str | None = None

    @property
    def ties(self) -> KeyedSource:
        """The stream that breaks ties of rounding."""
        return KeyedSource(self.key.derive("ties"))


@dataclass(frozen=True)
class Journal:
    """The journal in ``folder`` of a release, which is identified by the digests of its configuration and its input."""

    folder: Path
    configuration: str
    input: str = field(repr=False)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the output directory for this run, and keep its folder closed to other users.

        Raises `ConfigError` while another run holds it.
        """
        with ExitStack() as held:
            try:
                make_folder(self.folder, private=True)
                held.enter_context(locked(self.folder / "lock"))
            except BlockingIOError:
                raise ConfigError(
                    f"{shown_path(self.folder.parent)}: another run is writing here; wait for it, or give another "
                    "--output"
                ) from None
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"{shown_path(self.folder)}: cannot be written: {reason(error, FAILED)}; correct the permissions, "
                    "or give another --output"
                ) from None
            yield

    def release_name(self) -> str:
        """The name of this directory's release, computed from its secret, which is made when it is first needed."""
        return KeyedSource(self._secret()).spawn("release").key.hex()[:32]

    def has_secret(self) -> bool:
        """Whether the secret exists."""
        return (self.folder / _SECRET).is_file()

    def input_code(self) -> str:
        """The code of the input for the ledger: of its digest under the secret, so that it reveals nothing."""
        return KeyedSource(self._secret()).spawn("input", self.input).key.hex()

    def read(self) -> BegunRelease | None:
        """The release that was begun here; None where no noise can have been drawn.

        Raises `DataError` where the record was changed or an earlier version wrote it, `ConfigError` or `DataError`
        where it belongs to another configuration or input.
        """
        path = self.folder / _FILE
        try:
            self._require_of_this_version()
            if not path.exists():
                return None
            found = json.loads(self._sealed())
            version, configuration, table = found["streams"], found["configuration"], found["input"]
            measured, cut = found["measured"], found.get("cut")
            cut, below = None if cut is None else (int(cut[0]), int(cut[1])), found.get("below")
        except DataError:
            raise
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{shown_path(path)}: the record of the noise cannot be read: {reason(error)}; {_RESTORE}"
            ) from None
        if version != STREAMS_VERSION:
            raise DataError(
                f"{shown_path(path)}: this release was begun by another version of Topdown, which draws other noise "
                "from the same key; finish it with that version"
            )
        remedy = (
            "it is a different release (so is one with a changed list of units): give it another --output directory"
        )
        if configuration != self.configuration:
            raise ConfigError(
                f"{shown_path(self.folder.parent)} holds noise that was drawn under another configuration; {remedy} "
                "(where only Topdown changed, and has other settings now, finish it with the earlier version)"
            )
        if table != self.input:
            raise DataError(
                f"{shown_path(self.folder.parent)} holds noise that was drawn for another input file; {remedy}"
            )
        return BegunRelease(self._key(), measured, cut, below)

    def begin(self) -> BegunRelease:
        """Write and sync what the noise will be computed from, before any is drawn."""
        self._write(None, None)
        return BegunRelease(self._key(), None)

    def keep(self, begun: BegunRelease, measurements: Measurements) -> str:
        """Keep the code of ``measurements``, which reveals nothing about them, and return it.

        Raises `DataError` where other measurements were made with the same noise before.
        """
        return self.keep_code(begun, begun.key.code(MEASUREMENTS, _all_of(measurements)))

    def keep_code(self, begun: BegunRelease, measured: str, cut: tuple[int, int] | None = None) -> str:
        """As `keep`, for ``measured``, the code of the measurements; made in parts where ``cut`` is given."""
        if begun.measured is None:
            self._write(measured, cut)
        else:
            self._require_same(begun.measured, measured)
        return measured

    def keep_below(self, begun: BegunRelease, below: str) -> None:
        """Keep the code of what parts measured on the way down, before any of it is released. Raises as `keep`.

        ``begun``: after `keep_code`.
        """
        if begun.below is None:
            self._write(begun.measured, begun.cut, below)
        else:
            self._require_same(begun.below, below)

    def _require_same(self, before: str, measured: str) -> None:
        if not hmac.compare_digest(before, measured):
            raise MeasuredOtherwise(
                f"{shown_path(self.folder / _FILE)}: this run measured other numbers than the run before it; another "
                "version of Topdown or of its libraries may be the cause; nothing was released: finish the release "
                "with the version that began it"
            )

    def _write(self, measured: str | None, cut: tuple[int, int] | None, below: str | None = None) -> None:
        path, secret = self.folder / _FILE, self._secret()
        content = json.dumps(
            {
                "streams": STREAMS_VERSION,
                "configuration": self.configuration,
                "input": self.input,
                "measured": measured,
                **({} if cut is None else {"cut": cut}),
                **({} if below is None else {"below": below}),
            }
        )
        try:
            with whole_file(path, private=True) as partial:
                partial.write_text(content + _seal(secret, content.encode()), encoding="ascii")
            sync_folder(self.folder)
        except OSError as error:
            raise DataError(
                f"{shown_path(path)}: cannot be written: {reason(error, FAILED)}; free the space and run again: "
                "nothing was released, and the next run draws the same noise"
            ) from None

    def _secret(self) -> bytes:
        """The secret, drawn and synced when it is first asked for. Raises `DataError` where it is damaged or gone."""
        path = self.folder / _SECRET
        try:
            if not path.is_file():
                if (self.folder / _FILE).exists():
                    raise DataError(f"{shown_path(path)}: the release's secret is missing; {_RESTORE}")
                self._require_of_this_version()
                drawn = secrets.token_bytes(SECRET_BYTES)
                with whole_file(path, private=True) as partial:
                    partial.write_text(drawn.hex() + hashlib.sha256(drawn).hexdigest())
                sync_folder(self.folder)
            with path.open("rb") as file:
                text = file.read(2 * SECRET_BYTES + 64 + 1)
        except OSError as error:
            raise DataError(f"{shown_path(path)}: cannot be written: {reason(error, FAILED)}; free the space") from None
        secret = _from_hex(text[: 2 * SECRET_BYTES])
        if secret is None or text[2 * SECRET_BYTES :] != hashlib.sha256(secret).hexdigest().encode():
            raise DataError(f"{shown_path(path)}: the release's secret is damaged; {_RESTORE}")
        return secret

    def _key(self) -> NoiseKey:
        return NoiseKey(self._secret(), self.configuration, self.input)

    def _require_of_this_version(self) -> None:
        """Refuse a folder in which an earlier version began a release: its noise is kept there, and not drawn again."""
        for name in _EARLIER:
            if (self.folder / name).exists():
                raise DataError(
                    f"{shown_path(self.folder / name)}: an earlier version of Topdown began this release and kept its "
                    "noise; finish it with that version"
                )

    def _sealed(self) -> bytes:
        """The content of the record without its seal, after checking the seal. Raises `DataError`, or an `OSError`."""
        path = self.folder / _FILE
        secret = self._secret()
        if not path.is_file():
            raise DataError(f"{shown_path(path)}: the record of the noise is not a file; {_RESTORE}")
        with path.open("rb") as file:
            text = file.read(_LARGEST)
        content = text[:-_SEAL_LETTERS]
        if not hmac.compare_digest(_seal(secret, content).encode(), text[-_SEAL_LETTERS:]):
            raise DataError(
                f"{shown_path(path)}: the record of the noise is not what was written: it is damaged, or another "
                f"release's; {_RESTORE}"
            )
        return content


def _all_of(measurements: Measurements) -> Iterator[tuple[tuple[str, str], npt.NDArray[Any]]]:
    yield ("", ""), measurements.values
    for (level, query), answers in sorted(measurements.others.items()):
        yield (level, query), answers.values


def _seal(secret: bytes, content: bytes) -> str:
    """HMAC-SHA256 of ``content`` under a key of its own."""
    return hmac.new(KeyedSource(secret).spawn("record").key, content, "sha256").hexdigest()


def _from_hex(text: bytes) -> bytes | None:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
