import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

COMMAND = """
import click
from stagewright.plugins import hookimpl

@click.command("{name}")
def command():
    click.echo("hello from {dist}")

@hookimpl
def stagewright_cli(group):
    group.add_command(command)
"""


def install(site: Path, dist: str, source: str) -> Mapping[str, str]:
    """Install a made-up distribution with one plugin; answers with the environment that finds it."""
    module = dist.replace("-", "_")
    metadata = site / f"{module}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(f"[stagewright]\nit = {module}\n", encoding="utf-8")
    (site / f"{module}.py").write_text(source, encoding="utf-8")
    return {"PYTHONPATH": f"{site}:{':'.join(path for path in sys.path if path)}"}


def test_without_arguments_it_shows_its_commands(stagewright: Run) -> None:
    done = stagewright()
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("run", "plugins", "diagram"):
        assert f"\n  {command} " in done.stdout


def test_it_says_its_version(stagewright: Run) -> None:
    done = stagewright("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("stagewright ")


def test_an_unknown_command_is_one_line(stagewright: Run) -> None:
    done = stagewright("wrok")
    assert done.returncode == 2
    assert "there is no command 'wrok'; there are" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.guarantee("cli.extra-is-named")
@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from stagewright.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "install it from a clone's root with\n    pip install './packages/core[cli]'\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.guarantee("cli.plugins-add-commands")
def test_a_plugin_adds_a_command(stagewright: Run, tmp_path: Path) -> None:
    environment = install(tmp_path / "site", "greeter", COMMAND.format(name="greet", dist="greeter"))
    assert stagewright("greet", environment=environment).stdout == "hello from greeter\n"
    listed = stagewright("plugins", environment=environment)
    assert listed.returncode == 0
    [line] = [line for line in listed.stdout.splitlines() if "greeter:it" in line]
    assert line.split() == ["greeter:it", "1.0", "loaded", "command", "greet"]


def test_a_command_that_two_plugins_add_names_both(stagewright: Run, tmp_path: Path) -> None:
    install(tmp_path / "site", "first", COMMAND.format(name="greet", dist="first"))
    environment = install(tmp_path / "site", "second", COMMAND.format(name="greet", dist="second"))
    done = stagewright("greet", "--loud", environment=environment)
    assert done.returncode == 2
    assert "command 'greet' is claimed by both 'first:it' and 'second:it'" in done.stderr
    assert stagewright("plugins", environment=environment).returncode == 0
    blocked = {**environment, "STAGEWRIGHT_DISABLE_PLUGINS": "first:it"}
    assert stagewright("greet", environment=blocked).stdout == "hello from second\n"


def test_a_plugin_can_not_replace_a_command_of_core(stagewright: Run, tmp_path: Path) -> None:
    environment = install(tmp_path / "site", "grabber", COMMAND.format(name="run", dist="grabber"))
    assert "TARGET" in stagewright("run", "--help", environment=environment).stdout
    listed = stagewright("plugins", environment=environment)
    assert "grabber:it: it adds the command 'run', which is stagewright-core's" in listed.stdout


@pytest.mark.guarantee("cli.plugins-listed-with-errors")
def test_a_broken_plugin_is_listed_with_its_error_and_named_when_its_command_is_missed(
    stagewright: Run, tmp_path: Path
) -> None:
    environment = install(tmp_path / "site", "broken", "raise ValueError('no licence')\n")
    listed = stagewright("plugins", environment=environment)
    assert listed.returncode == 0
    assert any(line.split() == ["broken:it", "1.0", "failed"] for line in listed.stdout.splitlines())
    assert "broken:it: ValueError: no licence" in listed.stdout

    done = stagewright("unheard-of", environment=environment)
    assert done.returncode == 2
    assert "plugins that failed to load: broken:it" in done.stderr

    disabled = stagewright("plugins", environment={**environment, "STAGEWRIGHT_DISABLE_PLUGINS": "it"})
    assert any(line.split() == ["broken:it", "1.0", "disabled"] for line in disabled.stdout.splitlines())


def test_schemes_that_two_plugins_claim_are_listed(stagewright: Run, tmp_path: Path) -> None:
    source = (
        "from stagewright.plugins import hookimpl\n"
        "@hookimpl\ndef stagewright_register_adapters(registry):\n    registry.add('redis', open)\n"
    )
    install(tmp_path / "site", "first", source)
    environment = install(tmp_path / "site", "second", source)
    listed = stagewright("plugins", environment=environment)
    assert "redis://" in listed.stdout
    assert "scheme 'redis' is claimed by both 'first:it' and 'second:it'" in listed.stdout


def test_a_disabled_name_that_no_plugin_has_is_told(stagewright: Run, tmp_path: Path) -> None:
    environment = install(tmp_path / "site", "greeter", COMMAND.format(name="greet", dist="greeter"))
    names = {**environment, "STAGEWRIGHT_DISABLE_PLUGINS": "it, nosuch,greeter:it"}
    done = stagewright("plugins", environment=names)
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("warning: ")] == [
        "warning: STAGEWRIGHT_DISABLE_PLUGINS names 'nosuch', and no installed plugin is called that"
    ]


@pytest.mark.guarantee("cli.interrupt-ends-cleanly")
def test_an_interrupt_while_the_command_is_loaded_ends_cleanly_with_130() -> None:
    script = (
        "import sys\nclass Interrupts:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\nfrom stagewright.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stagewright: interrupted\n")


@pytest.mark.guarantee("cli.interrupt-ends-cleanly")
def test_an_interrupt_while_plugins_are_loaded_ends_cleanly_with_130(
    stagewright: Run, tmp_path: Path
) -> None:
    environment = install(tmp_path / "site", "slow", "raise KeyboardInterrupt\n")
    done = stagewright("plugins", environment=environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stagewright: interrupted\n")


def test_a_plugin_that_exits_takes_nothing_down(stagewright: Run, tmp_path: Path) -> None:
    source = (
        "from stagewright.plugins import hookimpl\n"
        "@hookimpl\ndef stagewright_cli(group):\n    raise SystemExit(0)\n"
    )
    environment = install(tmp_path / "site", "quitter", source)
    listed = stagewright("plugins", environment=environment)
    assert "quitter:it: stagewright_cli raised SystemExit: 0" in listed.stdout


@pytest.mark.guarantee("plugins.adapter-that-is-none-told")
@pytest.mark.parametrize(
    ("opener", "problem"),
    [
        ("def opener(url, options): return None", "its opener returned None"),
        ("async def opener(url, options): ...", "its opener returned an object of type coroutine"),
        ("def opener(url): ...", "its opener takes other arguments"),
    ],
)
def test_an_adapter_that_is_none_is_one_line_with_plugin_and_scheme(
    stagewright: Run, workflows: Path, tmp_path: Path, opener: str, problem: str
) -> None:
    source = (
        f"from stagewright.plugins import hookimpl\n{opener}\n"
        "@hookimpl\ndef stagewright_register_adapters(registry):\n    registry.add('far', opener)\n"
    )
    environment = install(tmp_path / "site", "far-away", source)
    arguments = ["run", "flows.py:orders", "--input", "name=x", "--url", "far://host"]
    done = stagewright(*arguments, environment=environment)
    assert done.returncode == 2
    told = f"stagewright: the adapter of 'far-away:it' for 'far' URLs can't be used: {problem}"
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_control_characters_of_a_plugin_do_not_reach_the_terminal(stagewright: Run, tmp_path: Path) -> None:
    environment = install(tmp_path / "site", "broken", "raise ValueError('no\\x1b[2J licence')\n")
    listed = stagewright("plugins", environment=environment)
    assert "broken:it: ValueError: no\\x1b[2J licence" in listed.stdout


def test_a_store_that_can_not_be_reached_is_one_line(
    stagewright: Run, workflows: Path, tmp_path: Path
) -> None:
    source = (
        "from contextlib import asynccontextmanager\nfrom stagewright.plugins import hookimpl\n"
        "@asynccontextmanager\nasync def opener(url, options):\n"
        "    raise ConnectionRefusedError('nobody listens')\n    yield\n"
        "@hookimpl\ndef stagewright_register_adapters(registry):\n    registry.add('far', opener)\n"
    )
    environment = install(tmp_path / "site", "far-away", source)
    done = stagewright(
        "run", "flows.py:orders", "--input", "name=x", "--url", "far://host", environment=environment
    )
    assert (done.returncode, done.stderr) == (1, "stagewright: ConnectionRefusedError: nobody listens\n")


def test_closed_standard_output_is_no_error() -> None:
    script = "import sys\nsys.stdout = None\nfrom stagewright.cli import main\nmain()\n"
    done = subprocess.run(
        [sys.executable, "-c", script, "plugins"], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
