"""The account a server runs as: a server that refuses to be root runs as nobody."""

import os
import stat
from pathlib import Path
from typing import NamedTuple

__all__ = ["Account", "is_reachable", "unprivileged_account"]


class Account(NamedTuple):
    """A user and its group, by number."""

    uid: int
    gid: int


def unprivileged_account() -> Account | None:
    """The account to change to, or `None` where the process is a plain user already."""
    if os.geteuid() != 0:
        return None
    import pwd  # Windows has none, and loads the plugin all the same.

    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def is_reachable(folder: Path, account: Account | None) -> bool:
    """Tells whether the account can pass through `folder` and every folder above it."""
    if account is None:
        return True
    return all(_lets_through(step.stat(), account) for step in (folder, *folder.parents))


def _lets_through(status: os.stat_result, account: Account) -> bool:
    if status.st_uid == account.uid:
        needed = stat.S_IXUSR
    elif status.st_gid == account.gid:
        needed = stat.S_IXGRP
    else:
        needed = stat.S_IXOTH
    return bool(status.st_mode & needed)
