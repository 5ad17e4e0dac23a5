"""Call actors and wait for them, never for ever.

Always true:

- every wait has a limit;
- the first failure ends the wait, and the error tells the one that came first: a process that died, before the ones
  that only lost their connection to it;
- the error holds the process's name, what it was doing, the cause, and the end of its log.

Ray is imported inside the functions: it reads the environment when it is imported, and `_ray` sets that first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from vime_train.cluster import _processes
from vime_train.cluster._actors import Host, log_path, logged_process
from vime_train.cluster._errors import ActorError, Failure, log_tail

if TYPE_CHECKING:
    import ray

T = TypeVar("T")

_HEALTH = "health"
"""A thread of an actor beside the one that works."""
_GRACE_SECONDS = 3.0
"""How long to look for the death behind a first failure; Ray notices one within a second."""
_ANSWER_SECONDS = 60.0
"""How long an actor may take to tell its process id, between two calls."""
_DIED = "died: its process is gone, killed from outside (out of memory?) or crashed. Ray says: {reason}"
_OUT_OF_MEMORY = (
    "was ended by Ray, since this machine's memory was full{numbers}: end other programs, or use fewer processes, a "
    "smaller model or a smaller `batching.max_tokens_per_gpu`."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """One living actor: what it is called, where it writes, and the mark of its run's processes on this machine."""

    name: str
    actor: ray.actor.ActorHandle
    log: Path
    token: str | None

    def kill(self) -> None:
        """End the actor's process now, also one that is stopped and hears nothing, if it is on this machine."""
        import ray

        ray.kill(self.actor, no_restart=True)
        if self.token is not None:
            _processes.kill(logged_process(self.log), self.token)

    def process_id(self) -> int:
        """The actor's process."""
        import ray

        return cast(int, ray.get(ask_health(self).ref, timeout=_ANSWER_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that is under way."""

    handle: Handle
    ref: ray.ObjectRef
    doing: str


def spawn(
    name: str, *, logs: Path, environment: Mapping[str, str], num_gpus: float, token: str | None = None
) -> Handle:
    """Begin to start an actor; `token` marks the run's processes where they are all on this machine."""
    import ray

    log = log_path(logs, name)
    options = {"num_cpus": 1, "num_gpus": num_gpus, "max_restarts": 0, "concurrency_groups": {_HEALTH: 1}}
    actor = ray.remote(**options)(Host).remote(log=str(log), environment=dict(environment))
    return Handle(name=name, actor=actor, log=log, token=token)


def start(handle: Handle, make: Callable[..., object], arguments: Mapping[str, object]) -> Call:
    """Begin to make the object that the actor holds."""
    return Call(handle=handle, ref=handle.actor.start.remote(make, dict(arguments)), doing="start")


def call(handle: Handle, method: str, *arguments: object, doing: str, **named: object) -> Call:
    """Begin a call."""
    return Call(handle=handle, ref=handle.actor.call.remote(method, *arguments, **named), doing=doing)


def ask_health(handle: Handle) -> Call:
    """Ask for a sign of life, which comes also while another call of the actor is under way."""
    ref = handle.actor.process_id.options(concurrency_group=_HEALTH).remote()
    return Call(handle=handle, ref=ref, doing="tell its health")


def busy_seconds(handles: Sequence[Handle]) -> list[float]:
    """How long each actor's object has worked so far; 0 for an actor that cannot tell."""
    import ray
    from ray.exceptions import RayError

    refs = [one.actor.busy_seconds.options(concurrency_group=_HEALTH).remote() for one in handles]
    found = [0.0] * len(refs)
    for place, ref in enumerate(refs):
        with suppress(RayError):  # whoever waits for its work is told that it is gone
            found[place] = ray.get(ref, timeout=_GRACE_SECONDS)
    return found


def share(value: T) -> ray.ObjectRef[T]:
    """Put a value where every actor can read it, once for all of them."""
    import ray

    return ray.put(value)


def wait(calls: Sequence[Call], *, timeout_seconds: float, setting: str) -> list[object]:
    """The results of the calls, in their order.

    Args:
        calls: what to wait for.
        timeout_seconds: the limit for all of them together.
        setting: the configuration key that sets the limit, for the error.

    Raises:
        ActorError: as soon as one of them failed, or when the time is over.
    """
    import ray

    by_ref = {one.ref: one for one in calls}
    deadline = time.monotonic() + timeout_seconds
    waiting = list(by_ref)
    while waiting:
        ready, waiting = ray.wait(waiting, num_returns=1, timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            raise _late([by_ref[ref] for ref in waiting], timeout_seconds, setting)
        if _failure(by_ref[ready[0]]) is not None:
            raise _root_cause(calls, ready[0], waiting)
    return [ray.get(one.ref, timeout=max(_GRACE_SECONDS, deadline - time.monotonic())) for one in calls]


def raise_if_failed(calls: Sequence[Call]) -> None:
    """Raise the failure of a call that has ended; never wait.

    Raises:
        ActorError: if one of them failed.
    """
    for one in calls:
        failure = _failure(one)
        if failure is not None:
            raise failure


def _root_cause(calls: Sequence[Call], first: ray.ObjectRef, waiting: list[ray.ObjectRef]) -> ActorError:
    import ray

    if waiting:
        ray.wait(waiting, num_returns=len(waiting), timeout=_GRACE_SECONDS)
    failures = {one.ref: failure for one in calls if (failure := _failure(one)) is not None}
    deaths = [failure for failure in failures.values() if failure.how == "died"]
    return deaths[0] if deaths else failures[first]


def _failure(one: Call) -> ActorError | None:
    """What went wrong in a call that has ended; None if nothing did, or it has not ended."""
    import ray
    from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError, RayError, RayTaskError

    try:
        ray.get(one.ref, timeout=0)
    except GetTimeoutError:
        return None
    except RayTaskError as error:
        cause = error.cause
        failure = _failed(one, f"failed: {type(cause).__name__}: {cause}", how="raised")
        failure.__cause__ = cause
        return failure
    except RayActorError as error:
        return _failed(one, _DIED.format(reason=str(error).splitlines()[0]), how="died")
    except OutOfMemoryError as error:
        return _failed(one, _out_of_memory(str(error)), how="died")
    except RayError as error:
        return _failed(one, f"failed: {error!r}", how="died")
    return None


def _out_of_memory(told: str) -> str:
    """Ray's page about it in a sentence.

    >>> _out_of_memory("Memory on the node (IP: 127.0.0.1) was 22.49GB used / 23.54GB limit (0.955489)")[:90]
    "was ended by Ray, since this machine's memory was full (22.49GB used / 23.54GB limit): end"
    """
    numbers = re.search(r"[\d.]+GB used / [\d.]+GB limit", told)
    return _OUT_OF_MEMORY.format(numbers=f" ({numbers[0]})" if numbers else "")


def _failed(one: Call, what: str, *, how: Failure) -> ActorError:
    handle = one.handle
    return ActorError(
        f"{handle.name}, asked to {one.doing}, {what}\n  The end of {handle.log}:\n{log_tail(handle.log)}",
        name=handle.name,
        how=how,
    )


def _late(calls: Sequence[Call], timeout_seconds: float, setting: str) -> ActorError:
    names = ", ".join(one.handle.name for one in calls)
    first = calls[0]
    return ActorError(
        f"{names}, asked to {first.doing}, did not answer within {timeout_seconds:g} s: "
        f"raise `{setting}` if it only needs longer.\n  The end of {first.handle.log}:\n{log_tail(first.handle.log)}",
        name=first.handle.name,
        how="late",
    )
