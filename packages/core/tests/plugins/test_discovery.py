from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import pytest

from stagewright.errors import PluginConflictError, PluginLoadError
from stagewright.plugins import DiscoveredPlugin, discover_plugins

Install = Callable[..., None]

GOOD = """
from contextlib import asynccontextmanager
from stagewright.plugins import AdapterSet, hookimpl

@asynccontextmanager
async def opener(url, options):
    yield AdapterSet()

@hookimpl
def stagewright_register_adapters(registry):
    registry.add("{scheme}", opener)
"""


def good(scheme: str) -> str:
    return GOOD.format(scheme=scheme)


def found(plugin_id: str) -> DiscoveredPlugin:
    [plugin] = [plugin for plugin in discover_plugins({}) if plugin.id == plugin_id]
    return plugin


@pytest.fixture(autouse=True)
def a_good_one(install: Install) -> None:
    install("good-dist", entry_points={"good": "plugin_good"}, modules={"plugin_good": good("good")})


def test_an_installed_plugin_is_loaded() -> None:
    plugin = found("good-dist:good")
    assert (plugin.state, plugin.version, plugin.problem) == ("loaded", "1.0", None)
    assert "good" in discover_plugins({}).adapters().schemes


@pytest.mark.guarantee("plugins.one-failure-stays-alone")
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import a_module_that_is_nowhere\n", "ModuleNotFoundError"),
        ("raise ValueError('no licence')\n", "ValueError: no licence"),
        ("import sys\nsys.exit('wrong platform')\n", "SystemExit: wrong platform"),
        ("def oops(:\n", "SyntaxError"),
        (
            "from stagewright.plugins import hookimpl\n@hookimpl\ndef stagewright_register_adaptors(registry): ...\n",
            "unknown hook 'stagewright_register_adaptors'",
        ),
        (
            "from stagewright.plugins import hookimpl\n@hookimpl\ndef stagewright_middleware(kernel): ...\n",
            "kernel",
        ),
        ("def stagewright_middleware(): ...\n", "it implements no hook"),
    ],
    ids=["import", "raises", "exits", "syntax", "unknown-hook", "signature", "unmarked"],
)
def test_a_broken_plugin_is_recorded_and_others_load(install: Install, source: str, problem: str) -> None:
    install("bad-dist", entry_points={"bad": "plugin_bad"}, modules={"plugin_bad": source})

    plugin = found("bad-dist:bad")
    assert plugin.state == "failed"
    assert problem in (plugin.problem or "")
    assert "\n" not in (plugin.problem or "")
    assert found("good-dist:good").state == "loaded"


def test_a_hook_that_raises_fails_its_plugin_only(install: Install) -> None:
    source = good("late").replace('registry.add("late", opener)', "raise RuntimeError('no driver')")
    install("late-dist", entry_points={"late": "plugin_late"}, modules={"plugin_late": source})

    plugins = discover_plugins({})
    assert "good" in plugins.adapters().schemes
    [late] = [plugin for plugin in plugins.failed if plugin.id == "late-dist:late"]
    assert late.problem == "stagewright_register_adapters raised RuntimeError: no driver"


@pytest.mark.guarantee("plugins.same-entry-point-name-twice")
def test_two_distributions_with_one_entry_point_name_both_load(install: Install) -> None:
    install("first-dist", entry_points={"redis": "plugin_first"}, modules={"plugin_first": good("first")})
    install("second-dist", entry_points={"redis": "plugin_second"}, modules={"plugin_second": good("second")})

    assert found("first-dist:redis").state == found("second-dist:redis").state == "loaded"
    assert {"first", "second"} <= set(discover_plugins({}).adapters().schemes)


@pytest.mark.guarantee("plugins.conflict-names-both")
def test_a_scheme_that_two_plugins_claim_is_an_error_when_it_is_opened(install: Install) -> None:
    install("first-dist", entry_points={"a": "plugin_first"}, modules={"plugin_first": good("disputed")})
    install("second-dist", entry_points={"b": "plugin_second"}, modules={"plugin_second": good("disputed")})

    registry = discover_plugins({}).adapters()
    with pytest.raises(PluginConflictError, match="'disputed'.*'first-dist:a'.*'second-dist:b'") as caught:
        registry.opener_of("disputed://x")
    assert caught.value.plugins == ("first-dist:a", "second-dist:b")
    assert registry.conflicts[0].claim == caught.value.claim
    registry.opener_of("good://x")


@pytest.mark.guarantee("plugins.newer-core-told")
def test_a_plugin_for_a_newer_core_is_told_by_its_requirement(install: Install) -> None:
    try:
        running = version("stagewright-core")
    except PackageNotFoundError:
        running = "0.1.0"
        install("stagewright-core", version=running, entry_points={}, modules={})
    install(
        "new-dist",
        entry_points={"new": "plugin_new"},
        modules={"plugin_new": "from stagewright.plugins import something_to_come\n"},
        requires=["pydantic>=1", "stagewright-core>=999.1,<1000"],
    )

    plugin = found("new-dist:new")
    assert plugin.state == "failed"
    assert plugin.problem == f"it needs stagewright-core>=999.1, and this is {running}"
    assert found("good-dist:good").state == "loaded"


@pytest.mark.guarantee("plugins.disabled-by-name")
@pytest.mark.parametrize("names", ["good", "good-dist:good", " other , good "])
def test_a_plugin_is_blocked_by_name_and_not_imported(install: Install, names: str) -> None:
    install("other-dist", entry_points={"good2": "plugin_good2"}, modules={"plugin_good2": good("other")})
    install(
        "unwanted-dist",
        entry_points={"good": "plugin_unwanted"},
        modules={"plugin_unwanted": "raise SystemExit\n"},
    )
    states = {plugin.id: plugin.state for plugin in discover_plugins({"STAGEWRIGHT_DISABLE_PLUGINS": names})}
    assert states["good-dist:good"] == "disabled"
    assert states["unwanted-dist:good"] == ("failed" if ":" in names else "disabled")
    assert states["other-dist:good2"] == "loaded"


def test_the_environment_of_the_process_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGEWRIGHT_DISABLE_PLUGINS", "good")
    assert {plugin.state for plugin in discover_plugins() if plugin.id == "good-dist:good"} == {"disabled"}


def test_using_a_plugin_that_is_not_loaded_raises_with_the_reason(install: Install) -> None:
    install(
        "bad-dist",
        entry_points={"bad": "plugin_bad"},
        modules={"plugin_bad": "raise ValueError('no licence')\n"},
    )
    plugins = discover_plugins({"STAGEWRIGHT_DISABLE_PLUGINS": "good"})
    with pytest.raises(PluginLoadError, match="'bad-dist:bad'.*no licence"):
        plugins.require("bad")
    with pytest.raises(PluginLoadError, match="disabled"):
        plugins.require("good-dist:good")
    with pytest.raises(PluginLoadError, match="no installed distribution declares it"):
        plugins.require("gone")
    assert discover_plugins({}).require("good").id == "good-dist:good"


def test_an_application_adds_a_plugin_without_a_distribution() -> None:
    class Broken:
        pass

    plugins = discover_plugins({}).with_plugin("mine", Broken())
    assert plugins.failed[-1].id == "application:mine"
    assert len(plugins) == len(discover_plugins({})) + 1


EVENTS = """
from stagewright.plugins import ConformanceTarget, event_plugin, hookimpl

@event_plugin("{id}", on=["stage:failed"])
async def tell(event): ...

@hookimpl
def stagewright_event_plugins():
    return {answer}

@hookimpl
def stagewright_middleware():
    return [middleware]

async def middleware(command, call_next):
    return await call_next(command)

class Host:
    def __init__(self, kernel): ...
    async def run(self): ...

@hookimpl
def stagewright_register_hosts(registry):
    registry.add("{id}", Host)

@hookimpl
def stagewright_conformance_targets():
    return [ConformanceTarget(name="target of {id}", url="{id}://")]
"""


def test_all_that_plugins_give_is_gathered_in_order(install: Install) -> None:
    for name in ("b", "a"):
        source = EVENTS.format(id=name, answer="[tell]")
        install(f"{name}-dist", entry_points={name: f"plugin_{name}"}, modules={f"plugin_{name}": source})
    plugins = discover_plugins({})
    assert [plugin.id for plugin in plugins.event_plugins() if plugin.id in "ab"] == ["a", "b"]
    assert len(plugins.middleware()) >= 2
    assert {"a", "b"} <= set(plugins.hosts())
    assert {"target of a", "target of b"} <= {target.name for target in plugins.conformance_targets()}


def test_event_plugins_or_hosts_of_one_name_are_an_error(install: Install) -> None:
    for name in ("b", "a"):
        source = EVENTS.format(id="same", answer="[tell]")
        install(f"{name}-dist", entry_points={name: f"plugin_{name}"}, modules={f"plugin_{name}": source})
    plugins = discover_plugins({})
    with pytest.raises(PluginConflictError, match="event plugin 'same'.*'a-dist:a'.*'b-dist:b'"):
        plugins.event_plugins()
    with pytest.raises(PluginConflictError, match="host 'same'"):
        plugins.hosts()
    with pytest.raises(PluginConflictError, match="conformance target 'target of same'"):
        plugins.conformance_targets()


@pytest.mark.parametrize("answer", ["tell", "None", "['stage:failed']"])
def test_a_hook_that_answers_with_the_wrong_thing_fails_its_plugin(install: Install, answer: str) -> None:
    source = EVENTS.format(id="odd", answer=answer)
    install("odd-dist", entry_points={"odd": "plugin_odd"}, modules={"plugin_odd": source})
    plugins = discover_plugins({})
    assert "odd" not in [plugin.id for plugin in plugins.event_plugins()]
    # pluggy drops an answer of None, which is no answer.
    assert ("odd-dist:odd" in [plugin.id for plugin in plugins.failed]) == (answer != "None")
