"""A release that is derived from measurements alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from topdown.config.derivation import DerivationConfig
from topdown.config.section import Section


class MeasurementsOptions(Section):
    """Where the measurements are: the public directory of a release, or with ``product`` the folder of the Census
    Bureau's noisy measurement files. Of these, ``state``: two digits; ``levels``: those to read; ``total``: the state's
    total, where it was published exactly elsewhere; ``incomplete``: whether to take files in which measurements are
    missing.
    """

    path: str
    product: str | None = None
    state: str | None = None
    levels: list[str] | None = None
    total: int | None = Field(default=None, ge=0)
    incomplete: bool = False

    @model_validator(mode="after")
    def _alone(self) -> Self:
        given = [
            name for name in ("state", "levels", "total", "incomplete") if getattr(self, name) not in (None, False)
        ]
        if self.product is None and given:
            raise ValueError(f"{given[0]} is of noisy measurement files; give product too, or take it out")
        return self


class ProjectConfig(DerivationConfig):
    """A release from measurements that were drawn before: another projection of the same noise, at no budget."""

    measurements: MeasurementsOptions

    @property
    def measurements_path(self) -> Path:
        """The measurements' path."""
        return self.path_of(self.measurements.path)

    def fingerprint(self, units: str | None = None, limits: str | None = None) -> str:
        """SHA-256 of what decides, beside the measurements, what is released; not of how it is checked."""
        projection = {"method", "weights"} | ({"upward"} if self.projection.upward is not None else set())
        settled = self.model_dump(mode="json", include={"projection": projection}) | {"units": units}
        if limits is not None:
            settled["limits"] = limits
        return hashlib.sha256(json.dumps(settled, sort_keys=True).encode()).hexdigest()
