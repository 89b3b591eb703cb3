"""Where results that are compared with the true counts are written: never in a folder called public."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from topdown.errors import DataError
from topdown.release.places import require_not_public
from topdown.wording import FAILED, reason, shown_path


def confidential_directory(output: Path) -> Path:
    """``output``/internal. Raises `ConfigError` if a folder on the path is called public, or is a release."""
    require_not_public(output, "a study compares with the true counts")
    return output / "internal"


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Raise a `DataError` for errors in writing files to ``directory``."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{shown_path(directory)}: cannot be written: {reason(error, FAILED)}; free the space or correct the path"
        ) from None
