"""The base class of every section of a configuration: frozen, and without unknown keys."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _as_written(value: Any) -> Any:
    """A number of TOML by its shortest decimal, so that 0.1 is exactly 1/10."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError('give a number, or a fraction as "1/3"')
    return str(value) if isinstance(value, int | float) else value


def _if_no_table(value: Any) -> Any:
    """As `_as_written`, but for a table, of which another form of the setting says what is wrong."""
    return value if isinstance(value, dict) else _as_written(value)


Exact = Annotated[str, BeforeValidator(_as_written, json_schema_input_type=str | float)]
ExactOfSeveral = Annotated[str, BeforeValidator(_if_no_table, json_schema_input_type=str | float)]
"""The same for a setting that may also be a table."""


class TomlSection(BaseModel):
    """A section of a configuration file."""

    # Most runs use few of the sections: their validators are built when they are first used.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)
