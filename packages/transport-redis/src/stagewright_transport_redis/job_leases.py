"""Leases of delivered jobs, on the server's clock."""

from datetime import timedelta

from stagewright.records import Fence, JobRecord, LeaseSweep
from stagewright.status import Status
from stagewright_transport_redis.encoding import Fields, fence_values, fields_of, record_of
from stagewright_transport_redis.heartbeats import RedisHeartbeats
from stagewright_transport_redis.job_admin import RedisJobAdmin

__all__ = ["RedisJobLeases"]

_MICROSECOND = timedelta(microseconds=1)


class RedisJobLeases(RedisJobAdmin):
    """See `JobLeases`; and forgetting jobs that ended long ago, which goes with the sweeps over leases."""

    async def touch(self, job_id: str, fence: Fence) -> bool:
        """Renew the lease; False if this delivery doesn't own the job any more."""
        return bool((await self._scripts.run("renew", job_id, *fence_values(fence)))[0])

    def open_heartbeats(self) -> RedisHeartbeats | None:
        """A channel that renews leases from threads; None with a client of the caller's and no other to connect by."""
        return self._namespace.heartbeats()

    async def release_stale(self, threshold: timedelta) -> LeaseSweep:
        """End the leases of RUNNING jobs that were not renewed for longer than `threshold`."""
        jobs = await self._end_leases("stale", threshold, "LEASE_HEARTBEAT_LOST: not renewed by worker ")
        await self._forget_ended()
        return LeaseSweep(
            released=tuple(job for job in jobs if job.status is Status.PENDING),
            exhausted=tuple(job for job in jobs if job.status is Status.FAILED),
        )

    async def expire_runaway(self, absolute_timeout: timedelta) -> list[JobRecord]:
        """Fail RUNNING jobs that were delivered longer ago than `absolute_timeout`, renewed or not."""
        seconds = f"{absolute_timeout.total_seconds():g}"
        error = f"LEASE_ABSOLUTE_CAP: still running {seconds} s after it was delivered"
        return await self._end_leases("runaway", absolute_timeout, error)

    async def _end_leases(self, which: str, age: timedelta, error: str) -> list[JobRecord]:
        ended, is_more = list[Fields](), True
        while is_more:
            answer = await self._scripts.run("end_leases", which, age // _MICROSECOND, error, self._is_fair)
            is_more = bool(answer[0])
            ended += map(fields_of, answer[1])
        ended.sort(key=lambda job: int(job["position"]))
        return [record_of(job) for job in ended]

    async def _forget_ended(self) -> None:
        keep = self._namespace.keep_ended // _MICROSECOND
        while await self._scripts.run("forget", keep) > 0:
            continue
