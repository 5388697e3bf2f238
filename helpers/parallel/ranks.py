"""Run a task in several ranks: processes on this machine that share no memory and end with the task.

    reports = run_ranks(handover, 2, folder, prompt, 4)  # what the task returned in each rank

Ranks communicate over gloo, on this machine's loopback interface. On Linux, they are forked from a server
that has already imported PyTorch, so that only the first start takes seconds. On other systems, each rank
imports PyTorch. All ranks end when this process ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from helpers.parallel.communicator import Communicator
from helpers.validate import check_whole, is_number

HOST = "127.0.0.1"
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
LOST = re.compile(r"closed by peer|reset by peer|broken pipe|timed out", re.IGNORECASE)


class RankError(RuntimeError):
    """A rank could not be started, raised an error, died, or did not end in time. All ranks have ended."""


@dataclass(frozen=True)
class Outcome:
    """How a rank ended.

    Attributes:
        value: what the task returned in the rank.
        failure: how the rank failed; "" if it did not fail.
        order: of several failures, that with the lowest order is most likely the cause of the others.
    """

    value: Any = None
    failure: str = ""
    order: int = 0


def run_ranks(task: Callable[..., Any], n: int, *args: Any, deadline_seconds: float = 60.0) -> list[Any]:
    """Run `task(communicator, *args)` in n processes at once; return its results, in the order of ranks.

    Even after an error or Ctrl-C, no process is left running and no port is left open. A script has to call
    this function under `if __name__ == "__main__":`.

    Args:
        task: a function at the top level of a module, because each new process has to import it. Its first
            argument is the `Communicator` of the rank.
        n: number of ranks; each has one thread.
        args: further arguments of the task, the same for every rank. Arguments and results are pickled.
        deadline_seconds: time after which all ranks are ended. No rank waits for another for more than two
            thirds of this time.

    Raises:
        ValueError: n or deadline_seconds is out of range, or a rank could not import the task.
        RankError: a rank raised an error, died, or did not end in time. The message names the rank that most
            likely failed first.
    """
    check_whole("n", n)
    if not is_number(deadline_seconds) or deadline_seconds <= 0:
        raise ValueError(f"deadline_seconds is {deadline_seconds!r}; expected seconds, over 0")
    if not isinstance(task, FunctionType) or task.__module__ == "__main__" or "<" in task.__qualname__:
        raise ValueError(
            f"the task is {task!r}; expected a function of a module: a rank has to import it, and what is "
            "defined in a cell or in a function, or made by functools.partial, cannot be imported; pass the "
            "task's arguments after n"
        )
    deadline = time.monotonic() + deadline_seconds
    timeout = timedelta(seconds=deadline_seconds)
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False, timeout=timeout)  # a free port
    method = "forkserver" if sys.platform == "linux" else "spawn"
    mp.get_context(method).set_forkserver_preload(["torch"])  # not this package, whose edits would be missed
    with tempfile.TemporaryDirectory() as folder:
        job = pickle.dumps((task, args)), n, store.port, deadline, folder
        processes: list[Any] = []
        try:
            context = mp.start_processes(rank_main, job, n, join=False, daemon=True, start_method=method)
            processes = context.processes
            with contextlib.suppress(mp.ProcessExitedException):  # then the others have been ended
                while time.monotonic() < deadline and not context.join(deadline - time.monotonic()):
                    pass
            outcomes = [
                outcome_of(Path(folder, str(rank)), process.exitcode)
                for rank, process in enumerate(processes)
            ]
        finally:
            del store  # closes its port, which a stored traceback would keep open
            for process in processes:
                process.kill()
                process.join()
                process.close()
    if failed := [(one.order, rank, one.failure) for rank, one in enumerate(outcomes) if one.failure]:
        _, rank, failure = min(failed)
        raise RankError(f"{task.__name__} in {n} ranks, limit {deadline_seconds:g} s: rank {rank} {failure}")
    return [outcome.value for outcome in outcomes]


def outcome_of(file: Path, code: int | None) -> Outcome:
    """Return how a rank ended, according to the file that it wrote, or else to its exit code.

    Args:
        file: path of the rank's file, which may not exist.
        code: exit code of the process; None if it was still running, negative if a signal ended it.
    """
    if code in (0, 1) and file.exists():
        return pickle.loads(file.read_bytes())
    if code in (None, -signal.SIGTERM):  # from `join`, which ends the other ranks if one has failed
        return Outcome(failure="was still running", order=2)
    signal_or_code = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
    return Outcome(failure=signal_or_code)


def rank_main(rank: int, job: bytes, n: int, port: int, deadline: float, folder: str) -> None:
    """Run one rank: connect to the others, run the task, and write its result or error to a file.

    Args:
        rank: number of this rank, from 0.
        job: the task and its arguments, pickled.
        n: number of ranks.
        port: port of the store through which ranks find each other.
        deadline: time at which all ranks are ended, in seconds of `time.monotonic`.
        folder: folder for the file, whose name is the number of the rank.
    """
    exit_with_parent()
    failed = False
    try:
        torch.set_num_threads(1)
        if sys.platform in LOOPBACK:  # on other systems gloo finds an address itself
            os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
        # Shorter than the deadline, so that a rank that waits in vain can report it and the cause is found.
        timeout = timedelta(seconds=max(0.1, 2 / 3 * (deadline - time.monotonic())))
        store = dist.TCPStore(HOST, port, is_master=False, timeout=timeout)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=n, timeout=timeout)
        task, args = pickle.loads(job)
        dist.barrier()  # all are connected: else, if a rank fails at once, others would still look for it
        payload = pickle.dumps(Outcome(task(Communicator(), *args)))
        dist.barrier()  # no rank exits while another may still need it
    except BaseException as error:  # Ctrl-C as well: the process that started this rank has to know
        order = 3 if LOST.search(str(error)) else 1  # a lost connection follows from another rank's failure
        payload = pickle.dumps(Outcome(failure=f"raised {type(error).__name__}: {error}", order=order))
        failed = True
    Path(folder, str(rank)).write_bytes(payload)
    sys.exit(failed)  # a failure ends the other ranks


def exit_with_parent() -> None:
    """Make this process end as soon as its parent process ends, even if the parent is killed."""

    def wait_for_parent() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()
