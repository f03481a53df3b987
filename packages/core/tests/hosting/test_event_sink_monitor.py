import pytest

from stagewright.commands import FlushOutboxResult
from stagewright.hosting import EventSinkMonitor, EventSinkReport
from stagewright.testing import FakeClock

REFUSED = FlushOutboxResult(failed=2, event_sink_status="degraded", event_sink_error="no route")


def test_nothing_is_known_before_the_first_delivery() -> None:
    assert EventSinkMonitor(FakeClock().now).report() == EventSinkReport()


def test_each_change_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    clock = FakeClock()
    monitor = EventSinkMonitor(clock.now)
    monitor.observe(FlushOutboxResult(published=1))
    healthy_since = clock.now()
    assert monitor.report() == EventSinkReport(status="healthy", since=healthy_since)
    clock.advance("1s")
    monitor.observe(FlushOutboxResult(published=1))
    assert monitor.report().since == healthy_since
    assert caplog.messages == []

    clock.advance("1s")
    for _ in range(3):
        monitor.observe(REFUSED)
    report = monitor.report()
    assert (report.status, report.since, report.consecutive_failures) == ("degraded", clock.now(), 3)
    assert report.last_error == "no route"
    assert len(caplog.messages) == 1

    monitor.observe(FlushOutboxResult())
    assert monitor.report().status == "degraded", "a flush without events says nothing about the sink"
    monitor.observe(FlushOutboxResult(published=2))
    assert monitor.report() == EventSinkReport(status="healthy", since=clock.now())
    assert len(caplog.messages) == 2


def test_dead_letters_are_counted_and_always_told(caplog: pytest.LogCaptureFixture) -> None:
    monitor = EventSinkMonitor(FakeClock().now)
    dead = FlushOutboxResult(dead_lettered=2, event_sink_status="degraded", event_sink_error="no")
    monitor.observe(dead)
    monitor.observe(dead)
    assert monitor.report().dead_lettered == 4
    told = [line for line in caplog.messages if "given up" in line]
    assert len(told) == 2
    assert all("plugin.replayDLQ" in line and "no" in line for line in told)


def test_a_flush_that_raises_is_degraded_too() -> None:
    monitor = EventSinkMonitor(FakeClock().now)
    monitor.observe_error(ConnectionError("away"))
    assert monitor.report().status == "degraded"
    assert "away" in str(monitor.report().last_error)
