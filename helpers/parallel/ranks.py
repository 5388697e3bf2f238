"""Run a task in several ranks. A rank is a process on this machine that shares no memory with the others.

    reports = run_ranks(disaggregated_prefill, 2, folder, prompt, 4)  # what the task returned in each rank

Ranks communicate over gloo, on this machine's loopback interface. On Linux, they are forked from a server
process that has already imported PyTorch, so that only the first start takes seconds. On other systems, each
rank imports PyTorch itself. All ranks end with the task, or when this process ends.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from helpers.parallel.communicator import Communicator
from helpers.validate import check_whole

HOST = "127.0.0.1"
LOOPBACK = {"linux": "lo", "darwin": "lo0"}


class RankError(RuntimeError):
    """Raised when a rank raised an error, died, or did not end in time. All ranks have ended by then."""


def run_ranks(task: Callable[..., Any], n: int, *args: Any, deadline_seconds: float = 60.0) -> list[Any]:
    """Run `task(communicator, *args)` in n processes at once. Return the results in the order of ranks.

    Even after an error or Ctrl-C, no process is left running and no port is left open. A script has to call
    this function under `if __name__ == "__main__":`.

    Args:
        task: a function at the top level of a module, because each new process has to import it. Its first
            argument is the `Communicator` of the rank.
        n: number of ranks; each has one thread.
        args: further arguments of the task, the same for every rank. Arguments and results must be picklable.
        deadline_seconds: time after which all ranks are killed, in seconds.

    Raises:
        ValueError: n is out of range, or a rank could not import the task.
        RankError: a rank raised an error, died, or did not end in time.
    """
    check_whole("n", n)
    if not isinstance(task, FunctionType) or task.__module__ == "__main__" or "<" in task.__qualname__:
        raise ValueError(
            f"the task is {task!r}; expected a function of a module: a rank has to import it, and what is "
            "defined in a cell or in a function, or made by functools.partial, cannot be imported; pass the "
            "task's arguments after n"
        )
    end, timeout = time.monotonic() + deadline_seconds, timedelta(seconds=deadline_seconds)
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False, timeout=timeout)  # a free port
    method = "forkserver" if sys.platform == "linux" else "spawn"
    mp.get_context(method).set_forkserver_preload(["torch"])  # not this package, whose edits would be missed
    with tempfile.TemporaryDirectory() as folder:
        job = pickle.dumps((task, args)), n, store.port, timeout, folder
        processes: list[Any] = []
        try:
            context = mp.start_processes(rank_main, job, n, join=False, daemon=True, start_method=method)
            processes = context.processes
            while not context.join(max(0.0, end - time.monotonic())):
                if time.monotonic() > end:
                    raise RankError(f"{task.__name__} in {n} ranks has not ended in {deadline_seconds:g} s")
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
            raise RankError(f"{task.__name__} in {n} ranks: rank {error.error_index}: {error}") from None
        finally:
            del store  # closes its port, which a stored traceback would keep open
            for process in processes:
                process.kill()
                process.join()
                process.close()
        return [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(n)]


def rank_main(rank: int, job: bytes, n: int, port: int, timeout: timedelta, folder: str) -> None:
    """Run one rank: connect to the other ranks, run the task, and write its result to a file.

    Args:
        rank: index of this rank, from 0.
        job: the task and its arguments, pickled.
        n: number of ranks.
        port: port of the store through which ranks find each other.
        timeout: how long a rank waits for another rank.
        folder: folder in which the result is written. The file's name is the index of the rank.
    """
    torch.set_num_threads(1)
    if sys.platform in LOOPBACK:  # on other systems gloo finds an address itself
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    store = dist.TCPStore(HOST, port, is_master=False, timeout=timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=n, timeout=timeout)
    task, args = pickle.loads(job)
    result = pickle.dumps(task(Communicator(), *args))
    dist.barrier()  # no rank exits while another may still need it
    Path(folder, str(rank)).write_bytes(result)
