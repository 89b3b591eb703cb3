"""Where nothing may be written: in a release, which would then be another one; and secrets, where all is published."""

from __future__ import annotations

import os
from pathlib import Path

from topdown.errors import ConfigError
from topdown.tables.readers import require_encodable
from topdown.wording import shown_path

MANIFEST, LINK = "manifest.json", "link.json"
"""What a release's folder holds: its manifest, or, of two linked tables, what ties them."""

_HEAD = 1 << 16
_SAID = {MANIFEST: (b'"schema_version"', b'"topdown"'), LINK: (b'"schema_version"', b'"statement"')}
"""What the beginning of these files of ours has; other programs have a manifest.json too."""


def require_outside_releases(output: str | Path) -> None:
    """Refuse an ``output`` that is the folder of a release or lies in one. Raises `ConfigError`."""
    real = _real(output)
    folder = next((one for one in (real, *real.parents) if _is_release(one)), None)
    if folder is not None:
        raise ConfigError(
            f"{shown_path(output)}: lies in the release {shown_path(folder)}, which would then not be the one that was "
            "published; give another --output"
        )


def beside(public: Path) -> Path:
    """The folder in which the release ``public`` lies; of a table of two linked ones, that of the release of both."""
    found = _real(public).parent
    while _is_release(found):
        found = found.parent
    return found


def require_not_public(output: Path, what: str) -> None:
    """Refuse an ``output`` in a release or below a folder called public, since ``what`` is confidential. Raises
    `ConfigError`."""
    if any(part.lower() == "public" for part in _real(output).parts):
        raise ConfigError(
            f"{shown_path(output)}: {what} and is not written under a directory called public; give another --output"
        )
    require_outside_releases(output)


def _real(output: str | Path) -> Path:
    # `realpath` and not `Path.resolve`, which stops at a loop of links.
    return Path(os.path.realpath(require_encodable(Path(output))))


def _is_release(folder: Path) -> bool:
    return any(all(word in _head(folder / name) for word in words) for name, words in _SAID.items())


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""
