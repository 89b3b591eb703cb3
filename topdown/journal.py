"""The run's own record, kept with the confidential data: noise is drawn once.

Measurements are written and synced here before anything is derived from them. A run that is started again with the same
configuration and the same input finds them and goes on; it draws nothing, so it reveals nothing more. A changed
configuration or input is a different release and is refused.

The record is an Arrow file and, behind it, a seal: HMAC-SHA256 of all of it under a secret that is kept beside it. What
does not carry its seal is damaged, or is another release's, and is refused before anything is parsed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from topdown.errors import ConfigError, DataError
from topdown.files import file_digest, locked, make_folder, sync_folder, whole_file
from topdown.geography import Geography
from topdown.measurements import Measurements
from topdown.noise import KeyedSource
from topdown.privacy.plan import Plan
from topdown.wording import FAILED, reason, shown_path

_FILE = "measurements.arrow"
_SECRET = "key"  # nosec B105 # the name of the file that holds it
_SECRET_BYTES = 32
_SEAL_BYTES = 32
_EARLIER = "release"
"""A file that earlier versions, which sealed nothing, kept in place of the secret."""

_RESTORE = (
    "restore the folder from a copy: without it the same release cannot be made again, and a new one in another "
    "--output spends its budget anew"
)


@dataclass(frozen=True)
class Journal:
    """The record in ``folder`` of the release that is named by two digests, of its configuration and of its input."""

    folder: Path
    configuration: str
    input: str = field(repr=False)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the output directory for this run alone, its folder closed to others.

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
        """The name of this directory's release, of which its secret, made when it is first asked for, is the source."""
        return self._secret().spawn("release").key.hex()[:32]

    def _secret(self) -> KeyedSource:
        """The secret, drawn and synced when it is first asked for. Raises `DataError` where it is damaged or gone."""
        path = self.folder / _SECRET
        try:
            if not path.is_file():
                self._require_nothing_sealed(path)
                drawn = secrets.token_bytes(_SECRET_BYTES)
                with whole_file(path, private=True) as partial:
                    partial.write_text(drawn.hex() + hashlib.sha256(drawn).hexdigest())
                sync_folder(self.folder)
            with path.open("rb") as file:
                text = file.read(2 * _SECRET_BYTES + 64 + 1)
        except OSError as error:
            raise DataError(f"{shown_path(path)}: cannot be written: {reason(error, FAILED)}; free the space") from None
        secret = _from_hex(text[: 2 * _SECRET_BYTES])
        if secret is None or text[2 * _SECRET_BYTES :] != hashlib.sha256(secret).hexdigest().encode():
            raise DataError(f"{shown_path(path)}: the release's secret is damaged; {_RESTORE}")
        return KeyedSource(secret)

    def _require_nothing_sealed(self, path: Path) -> None:
        """Refuse to draw a secret where a release was begun under another."""
        if (self.folder / _EARLIER).exists() or (self.folder / _FILE).exists():
            raise DataError(
                f"{shown_path(path)}: the release's secret is missing; if an earlier version of Topdown began this "
                f"release, finish it with that version; if not, {_RESTORE}"
            )

    @property
    def digest(self) -> str:
        """SHA-256 of the kept measurements, which tells nothing of them: a secret key is kept with them."""
        return file_digest(self.folder / _FILE)

    def write(self, measurements: Measurements, ties: KeyedSource) -> None:
        """Keep ``measurements``, and the key of the stream that will break rounding ties, as one synced file."""
        columns = [pa.array(np.ascontiguousarray(column)) for column in measurements.values.T]
        schema = pa.schema(
            [pa.field(cell, column.type) for cell, column in zip(measurements.cells, columns, strict=True)],
            metadata={
                "configuration": self.configuration,
                "input": self.input,
                "ties": ties.key.hex(),
                "fit for release": str(measurements.fit_for_release),
            },
        )
        path, secret = self.folder / _FILE, self._secret()
        try:
            with whole_file(path, private=True) as partial:
                with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                with pa.memory_map(str(partial)) as written:
                    seal = _seal(secret, written.read_buffer())
                with partial.open("ab") as file:
                    file.write(seal)
            sync_folder(self.folder)
        except OSError as error:
            # What failed may have been the sync of the folder, when the record had its name already.
            noise = (
                "the noise that was drawn is kept, and the next run goes on from it"
                if path.exists()
                else "the noise that was drawn is forgotten"
            )
            raise DataError(
                f"{shown_path(path)}: cannot be written: {reason(error, FAILED)}; free the space and run again: "
                f"nothing was released, and {noise}"
            ) from None

    def read(self, geography: Geography, plan: Plan, cells: Sequence[str]) -> tuple[Measurements, KeyedSource] | None:
        """The measurements of ``cells`` that were drawn before and their stream of ties; None where there are none yet.

        Raises `DataError` where they are not what was written, `ConfigError` or `DataError` where they belong to
        another configuration or input.
        """
        path = self.folder / _FILE
        # What a record of this release can take, its columns' names and metadata included.
        largest = 8 * geography.n_nodes * len(cells) + sum(1024 + 8 * len(cell.encode()) for cell in cells) + (1 << 16)
        try:
            if not path.exists():
                return None
            table = pa.ipc.open_file(self._sealed(largest)).read_all()
            metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
            ties = KeyedSource(bytes.fromhex(metadata["ties"]))
        except DataError:
            raise
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise DataError(
                f"{shown_path(path)}: the record of the noise cannot be read: {reason(error)}; {_RESTORE}"
            ) from None
        remedy = (
            "it is a different release (so is one with a changed list of units): give it another --output directory"
        )
        if metadata.get("configuration") != self.configuration:
            raise ConfigError(
                f"{shown_path(self.folder.parent)} holds noise that was drawn under another configuration; {remedy}"
            )
        if metadata.get("input") != self.input:
            raise DataError(
                f"{shown_path(self.folder.parent)} holds noise that was drawn for another input file; {remedy}"
            )
        if table.num_rows != geography.n_nodes:
            raise DataError(
                f"{shown_path(path)}: holds {table.num_rows} nodes, and the geography has {geography.n_nodes}; restore "
                "it from a copy"
            )
        values = np.stack([np.asarray(column) for column in table.columns])
        variance = np.empty(geography.n_nodes)
        for level in geography.levels:
            variance[geography.level_slice(level)] = plan.variance(level)
        measurements = Measurements(
            geography,
            tuple(table.column_names),
            values.T,
            variance,
            plan,
            fit_for_release=metadata.get("fit for release") == "True",
        )
        return measurements, ties

    def _sealed(self, largest: int) -> pa.Buffer:
        """The content of the record without its seal, which was found to be right. `DataError`, or an `OSError`."""
        path = self.folder / _FILE
        secret = self._secret()
        if not path.is_file():
            raise DataError(f"{shown_path(path)}: the record of the noise is not a file; {_RESTORE}")
        size = path.stat().st_size
        if size > largest:
            raise DataError(
                f"{shown_path(path)}: the record of the noise has {size:,} bytes, and this release's has at most "
                f"{largest:,}: it is damaged, or another release's; {_RESTORE}"
            )
        with pa.OSFile(str(path), "rb") as source:
            content = source.read_buffer(size)
        sealed = content.slice(0, max(0, content.size - _SEAL_BYTES))
        if not hmac.compare_digest(_seal(secret, sealed), content.slice(sealed.size).to_pybytes()):
            raise DataError(
                f"{shown_path(path)}: the record of the noise is not what was written: it is damaged, or another "
                f"release's; {_RESTORE}"
            )
        return sealed


def _seal(secret: KeyedSource, content: pa.Buffer) -> bytes:
    """HMAC-SHA256 of ``content`` under a key of its own."""
    return hmac.new(secret.spawn("measurements").key, memoryview(content), "sha256").digest()


def _from_hex(text: bytes) -> bytes | None:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
