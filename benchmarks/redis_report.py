"""The figures of jobs on Redis as Markdown tables and as JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.cells import facts_lines, ratio_cell
from benchmarks.redis_hand_overs import HandOvers
from benchmarks.redis_rounds import JobEntry, JobResult

__all__ = ["RedisReport", "as_json", "as_markdown"]

_DRAINS = (
    "| | takes | jobs/s (slowest–fastest) | of Dramatiq | of the stream | client CPU ms a job | server CPU ms a job |",
    "|---|---|---|---|---|---|---|",
)
_HAND_OVERS = ("| | p50 ms (lowest–highest round) | p99 ms | most ms |", "|---|---|---|---|")


@dataclass(frozen=True, slots=True)
class RedisReport:
    """Everything that was measured.

    Attributes:
        drains: Jobs from their enqueueing to their end.
        rival: The name of the entry that every other one is held against, if it was there.
        floor: The name of those that the others are held against that take jobs in the same way.
        hand_overs: Idle hand-overs.
        settings: How it was measured.
        facts: On what.
    """

    drains: Sequence[JobResult]
    rival: str
    floor: str
    hand_overs: Sequence[HandOvers]
    settings: Mapping[str, int]
    facts: Mapping[str, str]

    def ratios_to_rival(self, drain: JobResult) -> list[float]:
        """Round by round; nothing for itself, or without it."""
        return self._ratios(drain, lambda other: other.name == self.rival)

    def ratios_to_floor(self, drain: JobResult) -> list[float]:
        """Round by round; nothing for itself, or where none takes jobs in the same way."""
        takes = drain.entry.takes
        return self._ratios(drain, lambda other: (other.name, other.takes) == (self.floor, takes))

    def _ratios(self, drain: JobResult, is_other: Callable[[JobEntry], bool]) -> list[float]:
        other = next((one for one in self.drains if is_other(one.entry)), drain)
        return [] if other is drain else drain.ratios_to(other)


def as_markdown(report: RedisReport) -> str:
    """A table of drains and one of idle hand-overs, then how it was measured and on what."""
    lines = [*_DRAINS, *(_drain_line(report, drain) for drain in report.drains), ""]
    lines += [*_HAND_OVERS, *map(_hand_over_line, report.hand_overs), ""]
    lines += facts_lines(report.settings, report.facts)
    return "\n".join(lines)


def as_json(report: RedisReport) -> dict[str, Any]:
    """The same, and every round's figures."""
    return {
        "benchmark": "jobs on Redis: enqueue, dequeue, complete",
        "settings": dict(report.settings),
        "machine": dict(report.facts),
        "drains": [_drain_entry(report, drain) for drain in report.drains],
        "hand_overs": [
            {
                "name": one.name,
                "p50_ms": one.p50,
                "p99_ms": one.p99,
                "rounds": [list(part) for part in one.rounds],
            }
            for one in report.hand_overs
        ],
    }


def _drain_line(report: RedisReport, drain: JobResult) -> str:
    slowest, fastest = drain.spread
    cells = (
        drain.entry.name,
        drain.entry.takes,
        f"{drain.jobs_per_second:,.0f} ({slowest:,.0f}–{fastest:,.0f})",
        ratio_cell(report.ratios_to_rival(drain)),
        ratio_cell(report.ratios_to_floor(drain)),
        f"{drain.cpu_ms:.3f}",
        f"{drain.server_cpu_ms:.3f}",
    )
    return f"| {' | '.join(cells)} |"


def _hand_over_line(one: HandOvers) -> str:
    lowest, highest = one.spread
    return f"| {one.name} | {one.p50:.2f} ({lowest:.2f}–{highest:.2f}) | {one.p99:.2f} | {one.most:.2f} |"


def _drain_entry(report: RedisReport, drain: JobResult) -> dict[str, Any]:
    return {
        "name": drain.entry.name,
        "takes": drain.entry.takes,
        "jobs_per_second": drain.jobs_per_second,
        "client_cpu_ms_per_job": drain.cpu_ms,
        "server_cpu_ms_per_job": drain.server_cpu_ms,
        "ratios_to_dramatiq": report.ratios_to_rival(drain),
        "ratios_to_stream": report.ratios_to_floor(drain),
        "rounds": [asdict(one) for one in drain.rounds],
    }
