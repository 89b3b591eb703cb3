"""The files of a release in parts, each written by one worker from those of its parts."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topdown.machine.files import file_digest, make_folder
from topdown.pipeline.parts.filed_release import measured_release, published_release, release_name
from topdown.pipeline.parts.part_job import Folder, Record
from topdown.pipeline.parts.part_store import KEPT, put_durably, take
from topdown.release.answer_files import FOLDER, paths_of, table_batches
from topdown.release.partition import RELEASE_CSV, nodes_of_files
from topdown.tables.output_formats import format_of
from topdown.tables.tidy import named_failures
from topdown.workload.answer_tables import answer_tables


class Written(NamedTuple):
    """A file that is published: the folder of the release's parts, and its path in the public directory."""

    root: Path
    name: str


def write(asked: Written) -> None:
    """A file of the release, from those of its parts, which is there when it is whole."""
    path, digest = Folder(asked.root).public / asked.name, Folder(asked.root).digest(asked.name)
    done = take(digest)
    if done is not None and path.exists() and file_digest(path) == str(done["sha256"]):
        return
    # Two may write the same file: each under a name of its own.
    own = path.with_name(f".{secrets.token_hex(8)}{path.suffix}")
    try:
        with named_failures(path, KEPT):
            make_folder(path.parent, private=True)
            _write(asked, own)
            put_durably(digest, {"sha256": np.array(file_digest(own))})
            own.replace(path)
    finally:
        own.unlink(missing_ok=True)


def _write(asked: Written, path: Path) -> None:
    folder = Folder(asked.root)
    record = Record.whole(folder)
    release = published_release(measured_release(asked.root, release_name(folder)))
    if asked.name == RELEASE_CSV:
        batches = release.batches()
    elif asked.name.startswith(f"{FOLDER}/"):
        tables = answer_tables(list(record.tables), record.its_schema)
        table = next(one for one in tables if Path(paths_of(one)[0]).name == Path(asked.name).stem)
        batches = table_batches(table, release)
    else:
        batches = release.batches(nodes_of_files(release)[asked.name])
    format_of(path).write(path, batches, record.marks, True)
