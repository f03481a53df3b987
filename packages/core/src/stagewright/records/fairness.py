"""Fairness between groups of jobs: how many of one group may be RUNNING at a time, and which group a job is of."""

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from stagewright.errors import InvalidSettingError
from stagewright.json_values import Json
from stagewright.records.job import NewJob

__all__ = ["Fairness", "group_of"]

_LONGEST: Final = 200
"""Characters of a group's key as it is kept; a longer one is kept as its digest."""


_LARGEST_CAP: Final = 10**9
"""Any database can count so far, and no queue has so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """A cap on the jobs of one group, so that a group with much to do leaves room for the others.

    A job's group is the `group_key` that it was enqueued with, else the value at `group_by` in its payload. A text is
    a group as it is; any other value is the group of its JSON, so that `7` and `"7"` are one. Jobs with no value, or
    null, are one group too, and share one cap.

    Attributes:
        max_concurrent_per_group: How many jobs of one group may be RUNNING at a time, from 1 to 10**9.
        group_by: A path of names with dots between them, such as `config.tenantId`; the payload of a stage's job is
            `{"config": …}`, the stage's own config. None leaves groups to `NewJob.group_key`.

    Raises:
        InvalidSettingError: If the cap is no whole number from 1 to 10**9, or the path has an empty name.
    """

    max_concurrent_per_group: int
    group_by: str | None = None

    def __post_init__(self) -> None:
        cap: object = self.max_concurrent_per_group
        if type(cap) is not int or not 1 <= cap <= _LARGEST_CAP:
            problem = (
                f"must be a whole number of jobs from 1 to {_LARGEST_CAP}; leave fairness out for no cap"
            )
            raise InvalidSettingError("max_concurrent_per_group", cap, problem)
        path: object = self.group_by
        if path is None:
            return
        if not isinstance(path, str) or not all(path.split(".")):
            problem = "must be names with dots between them, such as 'config.tenantId', or None"
            raise InvalidSettingError("group_by", path, problem)


def group_of(job: NewJob, fairness: Fairness | None) -> str | None:
    """The group of a job that is to be enqueued: a text of 1 to 200 characters; None for those without a value.

    Args:
        job: The job, with its payload as it is before any part of it is put elsewhere.
        fairness: What the transport was given.
    """
    value: Json = job.group_key
    if value is None and fairness is not None and fairness.group_by is not None:
        value = job.payload
        for name in fairness.group_by.split("."):
            value = value.get(name) if isinstance(value, dict) else None
    return None if value is None else _key_of(value)


def _key_of(value: Json) -> str:
    """A text that every store can keep, and never an empty one; the key of a key is that key."""
    text = (
        value if isinstance(value, str) and value else json.dumps(value, sort_keys=True, ensure_ascii=False)
    )
    if len(text) <= _LONGEST and "\0" not in text and not any("\ud800" <= one <= "\udfff" for one in text):
        return text
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"
