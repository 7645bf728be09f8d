"""The engines this process has running, for the moment when there is no time to stop them one by one."""

from collections.abc import Callable

_running: dict[int, Callable[[], object]] = {}


def add(pid: int, kill: Callable[[], object]) -> None:
    """Engine `pid` runs from now on, and `kill` ends it and everything below it at once."""
    _running[pid] = kill


def remove(pid: int) -> None:
    _running.pop(pid, None)


def kill_all() -> None:
    """End every running engine without waiting for any of them."""
    for kill in list(_running.values()):
        kill()
