"""The file of `topdown project`: a release that is made from existing measurements only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Self

from pydantic import Field, model_validator

from topdown.config.derivation import DerivationConfig
from topdown.config.toml_section import TomlSection


class MeasurementsOptions(TomlSection):
    """Where the measurements are."""

    path: str
    """The public directory of a release, or with ``product`` the folder of the Census Bureau's noisy measurement
    files."""
    product: str | None = None
    """The product of the noisy measurement files, such as "pl94-2020-us"."""
    state: str | None = None
    """For noisy measurement files: the state, as its two-digit FIPS code."""
    levels: list[str] | None = None
    """For noisy measurement files: the levels to read."""
    total: int | None = Field(default=None, ge=0)
    """For noisy measurement files: the state's total, if it was published exactly elsewhere."""
    incomplete: bool = False
    """For noisy measurement files: also accept files in which measurements are missing."""

    @model_validator(mode="after")
    def _alone(self) -> Self:
        given = [
            name for name in ("state", "levels", "total", "incomplete") if getattr(self, name) not in (None, False)
        ]
        if self.product is None and given:
            raise ValueError(f"{given[0]} is for noisy measurement files; give product too, or leave it out")
        return self


class ProjectConfig(DerivationConfig):
    """A release from existing measurements: another projection of the same noise, which spends no budget."""

    not_in_fingerprint: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {**DerivationConfig.not_in_fingerprint, "measurements are known by their digest": ("measurements",)}
    )

    measurements: MeasurementsOptions

    @property
    def measurements_path(self) -> Path:
        """The measurements' path."""
        return self.path_of(self.measurements.path)
