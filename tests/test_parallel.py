"""Ranks: the same replies as on one machine, all bytes counted, no process left when a rank fails."""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.model import shipped
from helpers.model.attention import attend
from helpers.model.cache import StaticCache
from helpers.model.config import QKNormConfig
from helpers.model.generate import generate
from helpers.model.load import save
from helpers.parallel import ranks
from helpers.parallel.handover import disaggregated_prefill
from helpers.parallel.heads import shard_config, tensor_parallel
from helpers.parallel.ranks import RankError, run_ranks
from helpers.parallel.shards import attend_shard, context_parallel, merge_contexts
from tests import rank_tasks
from tests.test_latent import tiny_latent
from tests.tiny import in_passes, tiny, tiny_config, tokens

SPLITS = ([9], [1] * 9, [3, 1, 5])
# Ranks, and models whose heads and MLP they can divide: QK norms, more ranks than KV heads, biases.
SHARED: dict[int, list[dict[str, Any]]] = {
    2: [{"n_kv_heads": 1, "qkv_bias": True}, {"kind": QKNormConfig, "n_kv_heads": 2}],
    3: [{"intermediate_size": 24}],
    4: [{"n_heads": 8, "n_kv_heads": 2, "intermediate_size": 24, "tied": True}],
}
PLANTED = {
    "one sum forgotten": rank_tasks.heads_logits,
    "all ranks have rank 0's KV heads": rank_tasks.heads_logits,
    "merged by plain average": rank_tasks.context_logits,
    "entries counted as positions": rank_tasks.context_logits,
}


def stored(folder: Path, **sizes: Any) -> tuple[Path, Any]:
    """Return a small model, and the folder that holds it."""
    model = tiny(dtype=torch.float64, **sizes)
    save(model, folder)
    return folder, model


# Shards, without ranks.


@given(st.integers(1, 7), st.integers(0, 6), st.integers(1, 4), st.integers(0, 1000))
def test_merged_contexts_of_shards_equal_attention(T: int, before: int, n: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    S = before + T
    q, k, v = (
        torch.randn(2, H, length, 8, dtype=torch.float64, generator=draw)
        for H, length in ((6, T), (3, S), (3, S))
    )
    mask = torch.ones(T, S, dtype=torch.bool).tril(before)
    owner = torch.randint(n, (S,), generator=draw)  # some may have no entries
    shards = [
        attend_shard(q * 9, k[:, :, own], v[:, :, own], mask[:, own], 0.3)
        for own in (owner == rank for rank in range(n))
    ]
    contexts = merge_contexts(*(torch.stack(parts) for parts in zip(*shards, strict=True)))
    torch.testing.assert_close(contexts, attend(q * 9, k, v, mask, 0.3), rtol=0, atol=1e-12)


def test_invalid_arguments_raise_at_once(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"n": 0}, "n is 0"),
        ({"task": of_a_cell()}, "^the task is <function task.*; expected a function of a module"),
        (
            {"task": functools.partial(rank_tasks.fail)},
            "^the task is functools.partial.*; pass the",
        ),
    ]
    for settings, message in cases:
        with pytest.raises(ValueError, match=message):
            run_ranks(**{"task": rank_tasks.fail, "n": 2, "deadline_seconds": 5, **settings})
    for world, what in ((4, "n_heads 6"), (2, "3 KV heads"), (3, "intermediate_size 22")):
        with pytest.raises(ValueError, match=f"{world} ranks for {what}"):
            shard_config(tiny_config(), 0, world)
    for world in (1, 3):
        comm: Any = SimpleNamespace(rank=0, world_size=world)  # raised before a rank waits for another
        with pytest.raises(ValueError, match=f"disaggregated prefill in {world} ranks; expected 2"):
            disaggregated_prefill(comm, shipped.FOLDER, [1], 2)


def of_a_cell() -> Callable[..., Any]:
    """Return a function as a notebook's cell defines it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("def task(wire): ...", names)
    return names["task"]


# Ranks that run together.


@pytest.mark.parametrize("n", SHARED)
def test_logits_of_ranks_equal_those_of_one_machine(n: int, tmp_path: Path) -> None:
    ids, jobs, expected = tokens(2, 9), [], []
    for number, sizes in enumerate(SHARED[n]):
        folder, model = stored(tmp_path / str(number), **sizes)
        for split in SPLITS:
            one = in_passes(model, ids, split, StaticCache(model.config, 2, dtype=torch.float64))
            for task in (rank_tasks.heads_logits, rank_tasks.context_logits):
                jobs.append((task, (folder, ids, split), ""))
                expected.append(one)
    for results in run_ranks(rank_tasks.several, n, jobs):
        for (task, (_, _, split), _), logits, one in zip(jobs, results, expected, strict=True):
            torch.testing.assert_close(logits, one, rtol=0, atol=1e-9, msg=f"{task.__name__}, {split}")


def test_planted_bugs_change_the_logits(tmp_path: Path) -> None:
    ids = tokens(2, 9)
    folder, model = stored(tmp_path, n_heads=8, n_kv_heads=2, intermediate_size=24)
    right = in_passes(model, ids, [3, 1, 5], StaticCache(model.config, 2, dtype=torch.float64))
    prompt = ids[0].tolist()
    words = list(generate(model, prompt, 12))
    jobs: list[rank_tasks.Job] = [(disaggregated_prefill, (folder, prompt, 12), "")]
    ends = tmp_path / "ends"  # the same model, whose reply ends with its third word
    save(model, ends)
    config = json.loads((ends / "config.json").read_text(encoding="utf-8"))
    (ends / "config.json").write_text(json.dumps(config | {"eos_token_id": words[2]}), encoding="utf-8")
    jobs.append((disaggregated_prefill, (folder, prompt, 12), "received entries not counted"))
    jobs.append((disaggregated_prefill, (ends, prompt, 12), ""))
    jobs += [(task, (folder, ids, [3, 1, 5]), bug) for bug, task in PLANTED.items()]
    assert {bug for _, _, bug in jobs} == {"", *rank_tasks.BUGS}
    results = run_ranks(rank_tasks.several, 2, jobs)
    (here, here_bug, here_ends, *_), (there, there_bug, there_ends, *logits) = results
    assert here_ends.output_ids + there_ends.output_ids == words[: words.index(words[2]) + 1]
    assert here.output_ids + there.output_ids == words
    assert here_bug.output_ids + there_bug.output_ids != words
    missed = [bug for bug, one in zip(PLANTED, logits, strict=True) if torch.allclose(one, right, atol=1e-3)]
    assert missed == []


def test_ranks_of_the_shipped_model_send_the_expected_bytes() -> None:
    model, tokenizer = shipped.load_shipped()
    prompt = tokenizer.encode("Mia writes from Oslo . Mia swam in the lake . It was sunny . Signed by")
    alone = list(generate(model, prompt, 4))
    assert tokenizer.decode(alone) == "Mia from Oslo ."
    args, rows = (shipped.FOLDER, prompt, 4), 20 * 2048
    jobs = [(task, args, "") for task in (disaggregated_prefill, tensor_parallel, context_parallel)]
    (here, heads, context), (there, *others) = run_ranks(rank_tasks.several, 2, jobs)
    assert here.output_ids + there.output_ids == alone
    assert [one.output_ids for one in (heads, context, *others)] == [alone] * 4
    # 17 rows of 2,048 bytes; two sums a layer of 128 numbers a token; four heads' context and lse.
    assert context.sent_nbytes == {
        "first token": 8,
        "KV entries": 17 * 2048,
        "sums": 20 * 4 * 2 * 128 * 4,
        "contexts": 20 * 4 * 4 * 33 * 4,
    }
    assert [one.cache_nbytes for one in (heads, context, *others)] == [rows // 2] * 4
    assert here.cache_nbytes == 17 * 2048
    assert heads.weight_nbytes < 0.52 * here.weight_nbytes == 0.52 * context.weight_nbytes


def test_latent_entries_can_be_divided_among_ranks(tmp_path: Path) -> None:
    model, ids = tiny_latent(), tokens(2, 9)
    save(model, tmp_path)
    right = in_passes(model, ids, [3, 1, 5], StaticCache(model.config, 2, dtype=torch.float64))
    for logits in run_ranks(rank_tasks.context_logits, 2, tmp_path, ids, [3, 1, 5]):
        torch.testing.assert_close(logits, right, rtol=0, atol=1e-9)


# Ranks that fail.


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_error_in_one_rank_ends_the_others(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(RankError, match=r"(?s)rank 1: .*LookupError: no such thing"):
        run_ranks(rank_tasks.fail, 2, "raise", tmp_path, deadline_seconds=90)
    assert time.monotonic() - began < 60
    assert_nothing_left(tmp_path)


def test_ranks_are_ended_at_the_deadline(tmp_path: Path) -> None:
    with pytest.raises(RankError, match="fail in 2 ranks has not ended in 20 s"):
        run_ranks(rank_tasks.fail, 2, "hang", tmp_path, deadline_seconds=20)
    assert_nothing_left(tmp_path)


def assert_nothing_left(folder: Path) -> None:
    """Check that the ranks that wrote their ids have ended."""
    pids = [int(path.name) for path in folder.iterdir()]
    assert len(pids) == 2
    assert all(map(gone, pids))
    assert multiprocessing.active_children() == []


def test_ctrl_c_leaves_no_process_and_no_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    join, store, ports = ranks.mp.ProcessContext.join, ranks.dist.TCPStore, list[int]()

    def interrupted(*args: Any) -> Any:
        join(*args)
        raise KeyboardInterrupt

    def noting(*args: Any, **kwargs: Any) -> Any:
        new_store = store(*args, **kwargs)
        ports.append(new_store.port)
        return new_store

    monkeypatch.setattr(ranks.mp.ProcessContext, "join", interrupted)
    monkeypatch.setattr(ranks.dist, "TCPStore", noting)
    with pytest.raises(KeyboardInterrupt) as error:
        run_ranks(rank_tasks.fail, 2, "", tmp_path)
    assert_nothing_left(tmp_path)
    with socket.create_server((ranks.HOST, *ports)):  # the port is free again
        assert error.tb, "its frames keep references to all their objects"


def test_ranks_end_with_their_parent_process() -> None:
    with contextlib.ExitStack() as closed, socket.create_server((ranks.HOST, 0)) as server:
        server.settimeout(60)
        start = "from helpers.parallel.ranks import run_ranks; from tests import rank_tasks; "
        start += f"run_ranks(rank_tasks.stay, 2, {server.getsockname()[1]})"
        with subprocess.Popen([sys.executable, "-c", start]) as parent:
            lines = [closed.enter_context(server.accept()[0]) for _ in range(2)]
            assert [line.recv(1) for line in lines] == [b"!"] * 2
            parent.kill()
        for line in lines:
            line.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert line.recv(1) == b""  # its process has ended
