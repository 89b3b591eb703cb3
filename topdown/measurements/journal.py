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
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.machine.files import file_digest, locked, make_folder, whole_file
from topdown.machine.system import sync_folder
from topdown.measurements.measurements import Answers, Measurements
from topdown.noise import KeyedSource
from topdown.privacy.only_child import variances
from topdown.privacy.plan import Plan
from topdown.wording import FAILED, reason, shown_path
from topdown.workload import DETAILED, Query, Schema

_FILE = "measurements.arrow"
_SECRET = "key"  # nosec B105 # the name of the file that holds it
_SECRET_BYTES = 32
_SEAL_BYTES = 32
_READ_AT_ONCE = 1 << 20
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
        named = list(_columns(measurements))
        columns = [pa.array(column) for _, column in named]
        schema = pa.schema(
            [pa.field(name, column.type) for (name, _), column in zip(named, columns, strict=True)],
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
                with partial.open("rb") as written:
                    seal = _seal(secret, written)
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

    def read(
        self, geography: Geography, plan: Plan, cells: Sequence[str], attributes: Schema | None = None
    ) -> tuple[Measurements, KeyedSource] | None:
        """The measurements of ``cells`` and of the plan's other queries that were drawn before, and their stream of
        ties; None where there are none yet. ``attributes``: the schema of the cells, if they have one.

        Raises `DataError` where they are not what was written, `ConfigError` or `DataError` where they belong to
        another configuration or input.
        """
        path = self.folder / _FILE
        others = _others(geography, plan, Schema.of_cells(cells) if attributes is None else attributes)
        names = [*cells, *(name for query in others for name in _names(query))]
        # What a record of this release can take, its columns' names and metadata included.
        largest = 8 * geography.n_nodes * len(names) + sum(1024 + 8 * len(name.encode()) for name in names) + (1 << 16)
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
        if table.num_rows != geography.n_nodes or table.num_columns != len(names):
            raise DataError(
                f"{shown_path(path)}: holds {table.num_rows} nodes with {table.num_columns} numbers each, and this "
                f"release has {geography.n_nodes} with {len(names)}; restore it from a copy"
            )
        values = np.stack([np.asarray(column) for column in table.columns[: len(cells)]])
        variance = np.empty(geography.n_nodes)
        for level in geography.levels:
            asked = DETAILED in plan.queries(level)
            variance[geography.level_slice(level)] = variances(plan, geography, level) if asked else np.inf
        rows = {query.name: np.stack([np.asarray(table[name]) for name in _names(query)], axis=1) for query in others}
        answers: dict[tuple[str, str], Answers] = {}
        for level in geography.levels:
            nodes = geography.level_slice(level)
            for name in plan.queries(level):
                if name in rows:
                    answers[level, name] = Answers(rows[name][nodes], variances(plan, geography, level, name))
        measurements = Measurements(
            geography,
            tuple(table.column_names[: len(cells)]),
            values.T,
            variance,
            plan,
            metadata.get("fit for release") == "True",
            attributes,
            answers,
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
        if not hmac.compare_digest(_seal(secret, pa.BufferReader(sealed)), content.slice(sealed.size).to_pybytes()):
            raise DataError(
                f"{shown_path(path)}: the record of the noise is not what was written: it is damaged, or another "
                f"release's; {_RESTORE}"
            )
        return sealed


def _columns(measurements: Measurements) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The columns of the record, (nodes,) each: the cells', then those of every other query's answers, 0 at the levels
    that were not asked for them.
    """
    yield from zip(measurements.cells, map(np.ascontiguousarray, measurements.values.T), strict=True)
    by_query: dict[Query, dict[str, Answers]] = {}
    for (level, name), one in measurements.others.items():
        by_query.setdefault(Query.parse(name, measurements.schema), {})[level] = one
    for query in sorted(by_query, key=lambda one: one.name):
        levels = by_query[query]
        kind = np.result_type(*(one.values.dtype for one in levels.values()))
        for answer, name in enumerate(_names(query)):
            column = np.zeros(measurements.geography.n_nodes, kind)
            for level, one in levels.items():
                column[measurements.geography.level_slice(level)] = one.values[:, answer]
            yield name, column


def _others(geography: Geography, plan: Plan, schema: Schema) -> list[Query]:
    """The queries but the detailed one that ``plan`` measures or publishes exactly, by name."""
    names = {name for level in geography.levels for name in plan.queries(level)} - {DETAILED}
    return [Query.parse(name, schema) for name in sorted(names)]


def _names(query: Query) -> list[str]:
    return [f"{query.name}: {label}" for label in query.labels()]


def _seal(secret: KeyedSource, content: IO[bytes] | pa.NativeFile) -> bytes:
    """HMAC-SHA256 of all of ``content`` under a key of its own."""
    code = hmac.new(secret.spawn("measurements").key, digestmod="sha256")
    while part := content.read(_READ_AT_ONCE):
        code.update(part)
    return code.digest()


def _from_hex(text: bytes) -> bytes | None:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
