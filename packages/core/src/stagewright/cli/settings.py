"""What a command is told: by a flag, else by `STAGEWRIGHT_*`, else by `[tool.stagewright]` of pyproject.toml."""

import os
from collections.abc import Mapping
from typing import Any, TypeVar, cast, get_args

import click
from pydantic import ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError

from stagewright.cli.project_table import ProjectTable, ProjectTableError, read_project_table

__all__ = ["CommandSettings", "SettingError", "read_settings"]

S = TypeVar("S", bound="CommandSettings")
_PREFIX = "STAGEWRIGHT_"


class SettingError(click.ClickException):
    """A setting that can't be used, with where it comes from."""

    exit_code = 2


class CommandSettings(BaseSettings):
    """What every command may be told; a command with more has a subclass.

    Attributes:
        url: Where runs are kept.
        blob_store: Where large values are kept; at the same URL by default.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, extra="ignore")

    url: str | None = None
    blob_store: str | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _no_stray_truth_value(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool) and info.field_name is not None:
            meant = cls.model_fields[info.field_name].annotation
            # For pydantic it is a number as well.
            if meant is not bool and bool not in get_args(meant):
                raise ValueError("a truth value is no value for this")
        return value

    @field_validator("url", "blob_store", "job_transport", check_fields=False)
    @classmethod
    def _not_empty(cls, url: str | None) -> str | None:
        if url is not None and not url.strip():
            # Most often a variable of the shell that isn't set; the default would be another store than was meant.
            raise ValueError("write a URL such as sqlite:///runs.db, or leave it out")
        return url

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The sources, the strongest first."""
        project = InitSettingsSource(settings_cls, dict(read_project_table().values))
        return init_settings, env_settings, project


def read_settings(kind: type[S], flags: Mapping[str, object]) -> S:
    """The settings of a command.

    Args:
        kind: Which settings it has.
        flags: What was given on the command line, by setting; None for what wasn't.

    Raises:
        SettingError: If one of them can't be read.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        # Any: what was given is checked here
        return kind(**cast("dict[str, Any]", given))
    except ValidationError as error:
        table = read_project_table()
        problems = [
            _problem(str(detail["loc"][0]), detail["input"], detail["msg"], given, table)
            for detail in error.errors()
        ]
        raise SettingError("; ".join(dict.fromkeys(problems))) from error
    except (SettingsError, ProjectTableError) as error:
        raise SettingError(str(error)) from error


def _problem(name: str, value: object, message: str, given: Mapping[str, object], table: ProjectTable) -> str:
    variable = f"{_PREFIX}{name.upper()}"
    if name in given:
        source = f"--{name.replace('_', '-')}={value!r}"
    elif name in table.values and not os.environ.get(variable):
        source = f"{name}={value!r} under [tool.stagewright] in {table.file}"
    else:
        source = f"{variable}={value!r}"
    message = message.removeprefix("Value error, ")
    return f"{source}: {message[:1].lower()}{message[1:]}"
