"""Start ranks: processes on this machine that share nothing, run one task together, and are gone at its end.

    words = run_ranks(handover, 2, folder, prompt)  # what each rank gave

They talk over gloo, on this machine's loopback. On Linux a server that has imported PyTorch forks them, so
that only the first start takes seconds. Elsewhere each rank imports PyTorch anew. They end with this process.
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

from helpers.parallel.wire import Wire
from helpers.validate import check_whole, is_number

HOST = "127.0.0.1"
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
LOST = re.compile(r"closed by peer|reset by peer|broken pipe|timed out", re.IGNORECASE)


class RankError(RuntimeError):
    """Ranks could not be started, or one raised, died, or did not end in time; all of them are gone."""


@dataclass(frozen=True)
class Outcome:
    """How a rank ended: what its task gave, or how it failed; the lowest `order` is the likeliest cause."""

    value: Any = None
    failure: str = ""
    order: int = 0


def run_ranks(task: Callable[..., Any], n: int, *args: Any, deadline_seconds: float = 60.0) -> list[Any]:
    """Run `task(wire, *args)` in n processes at once; return what each gave, in the order of ranks.

    Args:
        task: a function of a module that can be imported: a process that starts afresh has nothing else. Its
            `Wire` knows which rank it is. (A script has to call this under `if __name__ == "__main__":`.)
        n: ranks, of one thread each.
        args: the same for every rank; they and the results travel as pickles.
        deadline_seconds: when all are ended; none waits for another longer than two thirds of it.

    Raises:
        ValueError: n or the deadline makes no sense, or a rank could not import the task.
        RankError: a rank raised, died or did not end in time: it says which, likeliest the first.
            No process and no port is left, not on Ctrl-C either.
    """
    check_whole("n", n)
    if not is_number(deadline_seconds) or deadline_seconds <= 0:
        raise ValueError(f"deadline_seconds is {deadline_seconds!r}; expected seconds, over 0")
    if not isinstance(task, FunctionType) or task.__module__ == "__main__" or "<" in task.__qualname__:
        raise ValueError(
            f"the task is {task!r}; expected a function of a module: a rank imports it, and what a cell, a "
            "function or functools.partial has made cannot be imported; give its arguments after n"
        )
    deadline = time.monotonic() + deadline_seconds
    patience = timedelta(seconds=deadline_seconds)
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False, timeout=patience)  # a free port
    method = "forkserver" if sys.platform == "linux" else "spawn"
    mp.get_context(method).set_forkserver_preload(["torch"])  # nothing of ours: it would not follow edits
    with tempfile.TemporaryDirectory() as folder:
        job = pickle.dumps((task, args)), n, store.port, deadline, folder
        processes: list[Any] = []
        try:
            context = mp.start_processes(be_rank, job, n, join=False, daemon=True, start_method=method)
            processes = context.processes
            with contextlib.suppress(mp.ProcessExitedException):  # the others have been ended
                while time.monotonic() < deadline and not context.join(deadline - time.monotonic()):
                    pass
            outcomes = [outcome(Path(folder, str(rank)), one.exitcode) for rank, one in enumerate(processes)]
        finally:
            del store  # and its port with it: a traceback that somebody keeps would keep both
            for process in processes:
                process.kill()
                process.join()
                process.close()
    if failed := [(one.order, rank, one.failure) for rank, one in enumerate(outcomes) if one.failure]:
        _, rank, how = min(failed)
        raise RankError(f"{task.__name__} in {n} ranks, {deadline_seconds:g} s at most: rank {rank} {how}")
    return [outcome.value for outcome in outcomes]


def outcome(file: Path, code: int | None) -> Outcome:
    """Return how a rank ended: what it left in its file, or else by its exit code."""
    if code in (0, 1) and file.exists():
        return pickle.loads(file.read_bytes())
    if code in (None, -signal.SIGTERM):  # that of `join`, which ends the others where one has failed
        return Outcome(failure="was still running", order=2)
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"
    return Outcome(failure=how)


def be_rank(rank: int, job: bytes, n: int, port: int, deadline: float, folder: str) -> None:
    """Be one rank: meet the others, run the task, say what it gave or what it raised."""
    end_with_parent()
    failed = False
    try:
        torch.set_num_threads(1)
        if sys.platform in LOOPBACK:  # elsewhere gloo looks for an address by itself
            os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
        # Shorter than the deadline, so that who waits in vain can say so, and the other is found out.
        patience = timedelta(seconds=max(0.1, 2 / 3 * (deadline - time.monotonic())))
        store = dist.TCPStore(HOST, port, is_master=False, timeout=patience)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=n, timeout=patience)
        task, args = pickle.loads(job)
        dist.barrier()  # all are there: a rank that fails at once would else leave others to look for it
        payload = pickle.dumps(Outcome(task(Wire(), *args)))
        dist.barrier()  # nobody leaves while another may still need it
    except BaseException as error:  # Ctrl-C as well: who started this rank wants to know
        order = 3 if LOST.search(str(error)) else 1  # what is lost follows from another rank that failed
        payload = pickle.dumps(Outcome(failure=f"raised {type(error).__name__}: {error}", order=order))
        failed = True
    Path(folder, str(rank)).write_bytes(payload)
    sys.exit(failed)  # so that the others are ended


def end_with_parent() -> None:
    """Let this process end when the one that started it ends, which closes a pipe even where it is killed."""

    def wait_for_it() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    threading.Thread(target=wait_for_it, daemon=True).start()
