"""The run's own record, kept with the confidential data: noise is drawn once.

Measurements are written and synced here before anything is derived from them. A run that is started again with the same
configuration and the same input finds them and goes on; it draws nothing, so it reveals nothing more. A changed
configuration or input is a different release and is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from topdown.errors import ConfigError, DataError
from topdown.geography import Geography
from topdown.measurements import Measurements
from topdown.noise import KeyedSource
from topdown.privacy.plan import Plan
from topdown.tables import whole_file

_FILE = "measurements.arrow"


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Journal:
    """The record in ``folder`` of the release that is named by two digests, of its configuration and of its input."""

    folder: Path
    configuration: str
    input: str = field(repr=False)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the output directory for this run alone. Raises `ConfigError` while another run holds it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(
                    f"{self.folder.parent}: another run is writing here; wait for it, or give another --output"
                ) from None
            yield

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
        with whole_file(self.folder / _FILE) as partial:
            partial.touch(mode=0o600)
            with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        sync_folder(self.folder)

    def read(self, geography: Geography, plan: Plan) -> tuple[Measurements, KeyedSource] | None:
        """The measurements that were drawn before and their stream of ties; None where there are none yet.

        Raises `ConfigError` or `DataError` where they belong to another configuration or input.
        """
        path = self.folder / _FILE
        if not path.exists():
            return None
        with pa.OSFile(str(path), "rb") as source:
            table = pa.ipc.open_file(source).read_all()
        metadata = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
        remedy = "it is a different release: give it another --output directory"
        if metadata["configuration"] != self.configuration:
            raise ConfigError(f"{self.folder.parent} holds noise that was drawn under another configuration; {remedy}")
        if metadata["input"] != self.input:
            raise DataError(f"{self.folder.parent} holds noise that was drawn for another input file; {remedy}")
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
            fit_for_release=metadata["fit for release"] == "True",
        )
        return measurements, KeyedSource(bytes.fromhex(metadata["ties"]))


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
