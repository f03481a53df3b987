"""What `stagewright conformance` does once its command line is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
import pytest

from stagewright.errors import InvalidSettingError
from stagewright.hosting import installed_adapters
from stagewright.plugins import ConformanceTarget, PluginSet, discover_plugins
from stagewright_conformance.errors import StoreRefusedError
from stagewright_conformance.exercised import Exercised
from stagewright_conformance.places import PORTS, Place, store_at
from stagewright_conformance.targets import installed_targets, target_lines
from stagewright_conformance.url_run import UrlRun, run_suites

__all__ = ["Request", "run"]

_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for; the command's help says what each of it means."""

    urls: tuple[str, ...] = ()
    apart: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    server: str | None = None
    listed: bool = False
    ports: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    erase: bool = False
    markdown: Path | None = None
    json_file: Path | None = None
    expression: str | None = None
    durations: int | None = None


class _RefusedError(click.ClickException):
    exit_code = 2


def run(request: Request) -> int:
    """Do what is asked for.

    Returns:
        The exit code: 0 if something was exercised and all of it passed, 130 after an interrupt, else 1.

    Raises:
        click.ClickException: If the request can't be met, or a store is refused; nothing was changed.
        StagewrightError: Whatever opening a URL raises.
    """
    plugins = discover_plugins()
    targets = installed_targets(plugins)
    if request.listed:
        for line in target_lines(targets):
            click.echo(line)
        return 0
    exercised = Exercised(table=True, markdown=request.markdown, json_file=request.json_file)
    run = UrlRun(
        places=_places(request, targets),
        registry=installed_adapters(plugins),
        ports=_ports(request.ports),
        erase=request.erase,
        exercised=exercised,
    )
    _warn_of(plugins)
    try:
        report, code = run_suites(run, _pytest_arguments(request))
    except StoreRefusedError as error:
        raise _RefusedError(str(error)) from error
    if code == pytest.ExitCode.INTERRUPTED:
        return _INTERRUPTED
    if report.is_conforming and code == pytest.ExitCode.OK:
        return 0
    failed = len(report.failed)
    click.echo(
        f"stagewright: {failed} test{'s' * (failed != 1)} failed"
        if failed
        else "stagewright: nothing passed",
        err=True,
    )
    return 1


def _places(request: Request, targets: tuple[ConformanceTarget, ...]) -> tuple[Place, ...]:
    if request.target is not None:
        if request.urls:
            raise click.UsageError("give URLs or --target, not both")
        return (_place_of(_named(request.target, targets), request, targets),)
    if request.server is not None:
        raise click.UsageError(
            "--server goes with --target NAME; `stagewright conformance --list` shows the names"
        )
    if not request.urls:
        return tuple(_place_of(one, request, targets) for one in targets if one.server is None)
    return tuple(_place(url, "", request, targets) for url in dict.fromkeys(request.urls))


def _place_of(target: ConformanceTarget, request: Request, targets: tuple[ConformanceTarget, ...]) -> Place:
    if target.server is not None and request.server is None:
        raise click.UsageError(
            f"target {target.name!r} needs a server; give --server, which is what follows :// in the URL of an empty "
            f"{target.server} database, such as me@localhost/empty"
        )
    if target.server is None and request.server is not None:
        raise click.UsageError(f"target {target.name!r} needs no server; leave --server out")
    # A folder of its own is filled in for each test.
    url = target.at(folder="{folder}", server=request.server or "")
    return _place(url, "" if request.apart else target.name, request, targets)


def _place(url: str, label: str, request: Request, targets: tuple[ConformanceTarget, ...]) -> Place:
    if "{server}" in url:
        raise InvalidSettingError("URL", url, "has {server} in it; give what belongs there")
    return Place(
        home=store_at(url, targets, lacks=request.lacks),
        apart={port: store_at(given, targets, lacks=request.lacks) for port, given in request.apart.items()},
        label=label,
    )


def _named(name: str, targets: tuple[ConformanceTarget, ...]) -> ConformanceTarget:
    for target in targets:
        if target.name.casefold() == name.casefold():
            return target
    known = ", ".join(repr(target.name) for target in targets)
    raise click.UsageError(f"there is no target {name!r}; there are {known}")


def _ports(given: tuple[str, ...]) -> tuple[str, ...]:
    for name in given:
        if name not in PORTS:
            raise click.UsageError(f"there is no port {name!r} with suites; there are {', '.join(PORTS)}")
    return given or PORTS


def _warn_of(plugins: PluginSet) -> None:
    for plugin in plugins.failed:
        click.echo(f"stagewright: plugin {plugin.id} is not used: {plugin.problem}", err=True)


def _pytest_arguments(request: Request) -> list[str]:
    arguments = [] if request.expression is None else ["-k", request.expression]
    return arguments if request.durations is None else [*arguments, f"--durations={request.durations}"]
