"""The run's own record, kept with the confidential data: noise is drawn once.

Measurements are written and synced here before anything is derived from them. A run that is started again with the same
configuration and the same input finds them and goes on; it draws nothing, so it reveals nothing more. A changed
configuration or input is a different release and is refused.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
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

_FILE = "measurements.arrow"
_NAME = "release"


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
                    f"{self.folder.parent}: another run is writing here; wait for it, or give another --output"
                ) from None
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"{self.folder}: cannot be written: {error}; correct the permissions, or give another --output"
                ) from error
            yield

    def release_name(self) -> str:
        """The name of this directory's release, made and synced when it is first asked for."""
        path = self.folder / _NAME
        try:
            if not path.exists():
                with whole_file(path, private=True) as partial:
                    partial.write_text(secrets.token_hex(16))
                sync_folder(self.folder)
            name = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot be written: {error}; free the space and run again") from error
        if not re.fullmatch(rb"[0-9a-f]{32}", name):
            raise DataError(
                f"{path}: does not hold the name of a release; restore it from a copy, or give another --output"
            )
        return name.decode()

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
        try:
            with (
                whole_file(self.folder / _FILE, private=True) as partial,
                pa.OSFile(str(partial), "wb") as sink,
                pa.ipc.new_file(sink, schema) as writer,
            ):
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            sync_folder(self.folder)
        except OSError as error:
            raise DataError(
                f"{self.folder / _FILE}: cannot be written: {error}; free the space and run again: nothing was "
                "released, and the noise that was drawn is forgotten"
            ) from error

    def read(self, geography: Geography, plan: Plan) -> tuple[Measurements, KeyedSource] | None:
        """The measurements that were drawn before and their stream of ties; None where there are none yet.

        Raises `ConfigError` or `DataError` where they belong to another configuration or input.
        """
        path = self.folder / _FILE
        if not path.exists():
            return None
        try:
            with pa.OSFile(str(path), "rb") as source:
                table = pa.ipc.open_file(source).read_all()
            metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
            ties = KeyedSource(bytes.fromhex(metadata["ties"]))
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise DataError(
                f"{path}: the record of the noise cannot be read: {error}; restore it from a copy: without it the same "
                "release cannot be made again, and a new one in another --output spends its budget anew"
            ) from error
        remedy = (
            "it is a different release (so is one with a changed list of units): give it another --output directory"
        )
        if metadata.get("configuration") != self.configuration:
            raise ConfigError(f"{self.folder.parent} holds noise that was drawn under another configuration; {remedy}")
        if metadata.get("input") != self.input:
            raise DataError(f"{self.folder.parent} holds noise that was drawn for another input file; {remedy}")
        if table.num_rows != geography.n_nodes:
            raise DataError(
                f"{path}: holds {table.num_rows} nodes, and the geography has {geography.n_nodes}; restore "
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
