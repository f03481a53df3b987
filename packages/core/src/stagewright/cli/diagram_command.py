import click

from stagewright.cli.printable import printable
from stagewright.cli.targets import load_target

__all__ = ["diagram_command"]


@click.command("diagram")
@click.argument("target")
@click.option("--workflow", "workflow_id", help="Which workflow, when the target has several.")
def diagram_command(target: str, workflow_id: str | None) -> None:
    """Print the workflow TARGET as a Mermaid flowchart.

    TARGET is path/to/file.py:name or package.module:name.
    """
    click.echo(printable(load_target(target).choose(workflow_id).diagram()))
