"""The command `stagewright`: its own commands, those of plugins, and what becomes of errors."""

import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from stagewright.cli.blobs_command import blobs_command
from stagewright.cli.diagram_command import diagram_command
from stagewright.cli.log_lines import printable_log_lines
from stagewright.cli.plugin_commands import add_plugin_commands
from stagewright.cli.plugins_command import plugins_command
from stagewright.cli.printable import printable
from stagewright.cli.run_command import run_command
from stagewright.cli.runs_command import runs_command
from stagewright.errors import (
    DefinitionError,
    InvalidAdapterError,
    InvalidConfigError,
    InvalidDurationError,
    InvalidInputError,
    InvalidSettingError,
    PluginConflictError,
    PluginLoadError,
    PortNotServedError,
    StagewrightError,
    UnknownSchemeError,
    UnknownWorkflowError,
)
from stagewright.plugins import PluginSet, discover_plugins

__all__ = ["build_application", "run_application"]

_WRONG_USE = (
    DefinitionError,
    InvalidAdapterError,
    InvalidConfigError,
    InvalidDurationError,
    InvalidInputError,
    InvalidSettingError,
    PluginConflictError,
    PluginLoadError,
    PortNotServedError,
    UnknownSchemeError,
    UnknownWorkflowError,
)


class _Application(click.Group):
    """The group of all commands; an unknown command also names the plugins that failed to load."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args and self.get_command(ctx, args[0]) is None:
            failed = ctx.find_object(PluginSet)
            names = ", ".join(plugin.id for plugin in failed.failed) if failed is not None else ""
            hint = f"; plugins that failed to load: {names} (`stagewright plugins` says why)" if names else ""
            known = ", ".join(self.list_commands(ctx))
            raise click.UsageError(f"there is no command {args[0]!r}; there are {known}{hint}", ctx)
        return super().resolve_command(ctx, args)


def build_application(plugins: PluginSet) -> click.Group:
    """The group with the commands of core and of plugins."""

    @click.group(
        cls=_Application,
        name="stagewright",
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"], "obj": plugins},
    )
    @click.version_option(_core_version(), message="%(prog)s %(version)s")
    @click.pass_context
    def application(ctx: click.Context) -> None:
        """Durable workflows in your application and your database."""
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())

    for command in (run_command, runs_command, blobs_command, plugins_command, diagram_command):
        application.add_command(command)
    add_plugin_commands(application, plugins)
    return application


def run_application(arguments: Sequence[str]) -> int:
    """Run one command line.

    Returns:
        The exit code: 0; 1 when a run didn't complete or something failed; 2 when the command line, what it names or
        the input is wrong; 130 when it was interrupted.
    """
    if sys.stdout is None:
        # It was closed by whoever started this process; what nobody reads is written nowhere.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it is open while the process lasts
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal or pipe that can't show a character gets an escape, not an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with printable_log_lines():
            application = build_application(discover_plugins())
            answer: Any = application.main(list(arguments), prog_name="stagewright", standalone_mode=False)
    except click.ClickException as error:
        return _failed(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _failed("interrupted", 130)
    except _WRONG_USE as error:
        return _failed(str(error), 2)
    except StagewrightError as error:
        return _failed(str(error) or type(error).__name__, 1)
    except OSError as error:
        return _failed(f"{type(error).__name__}: {error}", 1)
    return answer if isinstance(answer, int) else 0


def _failed(message: str, exit_code: int) -> int:
    sys.stdout.flush()
    click.echo(f"stagewright: {printable(message)}", err=True)
    return exit_code


def _core_version() -> str:
    try:
        return version("stagewright-core")
    except PackageNotFoundError:
        return "(running from its sources)"
