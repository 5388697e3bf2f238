"""Serving many: our engine, plain and fast, beside `transformers`' continuous batching on the same requests.

    python tests/benchmarks/bench_serving.py                  # both models, some minutes
    python tests/benchmarks/bench_serving.py --models shipped

Greedy, float32, the same weights and requests for all, prompts of 16 to 64 tokens, replies of 32. Medians of
runs that took turns, on a machine that should be idle. Not part of the test run.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.generation import ContinuousBatchingConfig

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from helpers.measure import in_turns, seconds_of  # noqa: E402 - from the tree this file stands in
from helpers.model.cache import PagedCache, StaticCache  # noqa: E402
from helpers.model.fast import speed_up  # noqa: E402
from helpers.model.generate import decode_step, prefill  # noqa: E402
from helpers.model.transformer import Transformer  # noqa: E402
from helpers.serve.engine import Engine  # noqa: E402
from helpers.serve.pages import PageManager  # noqa: E402
from helpers.serve.scheduler import Scheduler, Static  # noqa: E402
from helpers.serve.sequence import Request  # noqa: E402
from tests.benchmarks import bench_model as base  # noqa: E402
from tests.benchmarks.bench_part1 import table  # noqa: E402

NEW, BATCHES, PAGE, POOL = 32, (1, 8, 32), 16, 256
Asked = Sequence[tuple[list[int], int]]  # prompts, and tokens of their replies
Said = list[list[int]]


def requests(model: Transformer, n: int, shortest: int = NEW) -> Asked:
    """Return n requests from a seed, replies of `shortest` to NEW tokens."""
    rng, V = random.Random(0), model.config.vocab_size
    return [
        ([rng.randrange(1, V) for _ in range(rng.randint(16, 64))], rng.randint(shortest, NEW))
        for _ in range(n)
    ]


def ours(model: Transformer, slots: int, asked: Asked, kind: type[Scheduler] = Scheduler) -> tuple[Said, int]:
    """Let our engine answer; return the replies and the steps. Nothing ends early."""
    engine, steps = Engine(model, slots, n_pages=POOL, page_size=PAGE, kind=kind, eos_ids=()), 0
    for n, (prompt, max_new) in enumerate(asked):
        engine.add(n, prompt, max_new)
    while engine.busy:
        engine.step()
        steps += 1
    return [engine.sequences[n].reply for n in range(len(asked))], steps


def replies_of(model: Transformer, slots: int, asked: Asked) -> Said:
    """Return the replies of our engine alone."""
    return ours(model, slots, asked)[0]


def theirs(model: Any, slots: int, asked: Asked) -> Said:
    """Let `transformers` answer, with the same pages and slots; its manager is kept from call to call."""
    config = ContinuousBatchingConfig(
        page_size=PAGE, num_blocks=POOL, max_batch_tokens=2048, max_requests_per_batch=slots
    )
    greedy = transformers.GenerationConfig(
        max_new_tokens=NEW, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    output = model.generate_batch(
        [prompt for prompt, _ in asked], greedy, config, warmup=False, persistent_manager=True
    )
    return [one.generated_tokens for one in output.values()]


def bench_throughput(name: str, model: Transformer, turns: int) -> None:
    """Print tokens a second by batch, and how many replies are the same, token for token."""
    with base.folder_of(name) as folder:
        other = base.theirs_of(folder)
    models = {
        "plain": model,
        "fast, 32 bits": speed_up(model, bits=32),
        "fast, 8 bits": speed_up(model, bits=8),
    }
    rows: dict[str, list[str]] = {way: [way] for way in [*models, "transformers"]}
    for slots in BATCHES:
        asked = requests(model, slots)
        ways: dict[str, Callable[[], Said]] = {
            way: partial(replies_of, its, slots, asked) for way, its in models.items()
        }
        ways["transformers"] = partial(theirs, other, slots, asked)
        output = {way: run() for way, run in ways.items()}  # which warms up, too
        seconds = {way: np.median([seconds_of(run) for _ in range(turns)]) for way, run in ways.items()}
        for way, replies in output.items():
            same = sum(a == b for a, b in zip(replies, output["plain"], strict=True))
            rows[way].append(f"{slots * NEW / seconds[way]:,.0f} ({same} same)")
        other.destroy_cached_continuous_batching_manager()
    heads = ["tokens a second", *(f"{n} at once" for n in BATCHES)]
    table(f"{name}, {base.conditions()}", heads, list(rows.values()))


def bench_static(name: str, model: Transformer, turns: int) -> None:
    """Print steps and seconds of static and continuous batches, 48 requests of unequal replies, 8 slots."""
    asked, fast = requests(model, 48, shortest=2), speed_up(model)
    rows = []
    for kind in (Static, Scheduler):
        steps = ours(model, 8, asked, kind)[1]
        seconds = [
            np.median([seconds_of(partial(ours, its, 8, asked, kind)) for _ in range(turns)])
            for its in (model, fast)
        ]
        rows.append([kind.__name__, steps, *(f"{s:.2f}" for s in seconds)])
    table(f"{name}: 48 requests, 8 slots", ["", "steps", "plain, s", "fast, s"], rows)


def step_of(model: Transformer, cache: Any) -> Callable[[], Any]:
    """Return a decode step behind 128 tokens, to be called again and again."""
    prefill(model, [1] * 128, cache)

    def step() -> None:
        cache.truncate(128)
        decode_step(model, [1], cache)

    return step


def bench_pages(name: str, model: Transformer, turns: int) -> None:
    """Print a token's time over pages as a share of that over rows laid out, batch 1; the goal is 1.15."""
    rows = []
    for way, its in {"plain": model, "fast": speed_up(model)}.items():
        caches = {kind.__name__: kind(model.config, 1, 256) for kind in (StaticCache, PagedCache)}
        timings = in_turns({kind: step_of(its, cache) for kind, cache in caches.items()}, 3 * turns)
        best = [timing.best for timing in timings.values()]
        rows.append([way, *map(base.milliseconds, best), f"{best[1] / best[0]:.2f}"])
    table(f"{name}: ms a token, batch 1", ["", "laid out", "pages", "pages / laid out"], rows)


def show_users() -> None:
    """Print how many users run at a time in 2,048 rows, 200 requests: 256 rows for each, or pages of 16."""
    rng, rows = random.Random(0), []
    crowd = [Request(n, [1] * rng.randint(10, 100), rng.randint(10, 100)) for n in range(200)]
    for size in (256, PAGE):
        pages = PageManager(2048 // size, size, sharing=False)
        scheduler, steps, running = Scheduler(pages, 200), 0, 0
        for request in crowd:
            scheduler.add(request)
        while plan := scheduler.schedule():
            steps, running = steps + 1, running + len(plan)
            scheduler.ran(plan, {one: 1 for one, _ in plan})
        rows.append([size, f"{running / steps:.1f}", steps])
    table("Users that fit, 2,048 rows", ["rows a page", "users at a time", "steps"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=("shipped", "16M"), default=["shipped", "16M"])
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; the fast twin chooses its own")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {base.conditions()}")
    for name in options.models:
        model = base.model_of(name)
        for bench in (bench_throughput, bench_static, bench_pages):
            bench(name, model, options.turns)
    show_users()
    print(f"\nAfterwards: {base.conditions()}")


if __name__ == "__main__":
    main()
