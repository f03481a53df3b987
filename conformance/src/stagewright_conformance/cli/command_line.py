"""The command `stagewright conformance`; what brings pytest is imported when it is called."""

from pathlib import Path

import click

__all__ = ["conformance_command"]

_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command("conformance", epilog="It exits with 0 only if something was exercised and all of it passed.")
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--job-transport", metavar="URL", help="Where the jobs are, if not at URL.")
@click.option("--blob-store", metavar="URL", help="Where large values are, if not at URL.")
@click.option("--step-ledger", metavar="URL", help="Where durable steps are, if not at URL.")
@click.option("--target", metavar="NAME", help="Run on what an installed plugin names so; see --list.")
@click.option(
    "--server", metavar="HOST", help="What follows :// in the URL of an empty database, for a --target."
)
@click.option("--list", "listed", is_flag=True, help="List what installed plugins name, and run nothing.")
@click.option("--port", "ports", metavar="NAME", multiple=True, help="Only the suites of this port.")
@click.option("--lacks", metavar="NAME", multiple=True, help="Declare that the adapters lack a capability.")
@click.option("--erase", is_flag=True, help="Delete what the stores hold; without it they have to be empty.")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write the report as Markdown too.")
@click.option("--json", "json_file", type=_FILE, metavar="FILE", help="Write the report as JSON too.")
@click.option("-k", "expression", metavar="EXPRESSION", help="Only tests whose names match, as pytest's -k.")
@click.option("--durations", type=int, metavar="N", help="Show the N slowest tests, as pytest's.")
def conformance_command(
    urls: tuple[str, ...],
    *,
    job_transport: str | None,
    blob_store: str | None,
    step_ledger: str | None,
    target: str | None,
    server: str | None,
    listed: bool,
    ports: tuple[str, ...],
    lacks: tuple[str, ...],
    erase: bool,
    markdown: Path | None,
    json_file: Path | None,
    expression: str | None,
    durations: int | None,
) -> int:
    """Hold the adapters behind each URL against all that their ports promise, and say what was exercised.

    A URL is opened as open_kernel opens it, and every suite of the ports that it serves runs there. All that it holds
    is deleted between two tests, so it has to be empty. {folder} in a URL is a new folder for each test, as in
    'sqlite:///{folder}/runs.db'.

    Without a URL it runs on every target of installed plugins that needs no server.
    """
    from stagewright_conformance.cli import request

    return request.run(
        request.Request(
            urls=urls,
            apart={
                port: url
                for port, url in (
                    ("job_transport", job_transport),
                    ("blob_store", blob_store),
                    ("step_ledger", step_ledger),
                )
                if url is not None
            },
            target=target,
            server=server,
            listed=listed,
            ports=ports,
            lacks=lacks,
            erase=erase,
            markdown=markdown,
            json_file=json_file,
            expression=expression,
            durations=durations,
        )
    )
