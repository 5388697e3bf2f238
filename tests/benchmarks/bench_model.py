"""What Part II's model costs beside `transformers` on the same weights: time, bandwidth, memory, training.

    python tests/benchmarks/bench_model.py                          # all tables, about ten minutes
    python tests/benchmarks/bench_model.py speed --size 16M         # one table, one size
    python tests/benchmarks/bench_model.py speed context --threads 1

Batch 1, greedy, float32. Times are medians of runs that took turns, on a machine that should be idle:
PyTorch's threads wait for each other in busy loops, so that other work slows two threads far more than one.
Memory is measured in a process of its own (`peak_memory.py` beside this file). Not part of the test run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from helpers.measure import Timing, in_turns, in_words, seconds_of  # noqa: E402 - from the tree this is in
from helpers.model import load as checkpoints  # noqa: E402
from helpers.model import shipped  # noqa: E402
from helpers.model.cache import GrowingCache, KVCache, StaticCache  # noqa: E402
from helpers.model.config import ModelConfig  # noqa: E402
from helpers.model.generate import decode_step, generate  # noqa: E402
from helpers.model.sizes import CONFIGS  # noqa: E402
from helpers.model.train import BATCH, LENGTH, batches, train  # noqa: E402
from helpers.model.transformer import Transformer  # noqa: E402
from helpers.tokenizer import Tokenizer  # noqa: E402
from tests.benchmarks.bench_part1 import table  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

Player = Callable[[torch.Tensor, int], tuple[list[float], list[int]]]  # prompt, tokens → seconds, ids
CACHES: dict[str, type[KVCache]] = {"preallocated": StaticCache, "growing": GrowingCache}


@dataclass(frozen=True)
class Size:
    """One model to measure."""

    config: ModelConfig
    new_tokens: int  # decode steps a turn
    turns: int
    goal: float  # time per output token, as a share of `transformers`' at most

    def nbytes_of_step(self, context: float) -> int:
        """What one decode step must read: every weight (the LM head reads the embedding's) and the cache."""
        return int(4 * self.config.n_parameters + context * self.config.cache_nbytes_per_token())


SIZES = {
    "shipped": Size(CONFIGS["shipped"], new_tokens=64, turns=15, goal=0.6),
    "16M": Size(CONFIGS["16M"], new_tokens=32, turns=11, goal=0.85),
    "135M": Size(CONFIGS["135M"], new_tokens=12, turns=5, goal=0.95),
}
TTFT_GOAL = 1.05
PROMPTS = (128, 512)


@contextmanager
def folder_of(name: str) -> Iterator[Path]:
    """A checkpoint of this size in a temporary folder: trained weights in the smallest, else random ones."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.save(shipped.load()[0] if name == "shipped" else Transformer(SIZES[name].config), folder)
        yield Path(folder)


def model_of(name: str) -> Transformer:
    """A model of this size, as it is loaded from a folder."""
    with folder_of(name) as folder:
        return checkpoints.load(folder)


def reader_of(nbytes: int) -> Callable[[], Any]:
    """Read as many bytes as a token needs, from memory or from the processor's cache if they fit there."""
    return torch.ones(nbytes // 4).sum


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def conditions() -> str:
    """PyTorch's threads, and how busy the machine was in the last minute, in processors."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return f"threads: {torch.get_num_threads()}, load {load}"


class Clock:
    """A streamer of `transformers`: notes when the prompt came, which is at once, and each token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, tokens: torch.Tensor) -> None:
        """Called with the prompt first, then with each token."""
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Called at the end."""


def their_player(model: Any, **settings: Any) -> Player:
    """`transformers.generate`, from the prompt to each token."""

    def play(prompt: torch.Tensor, n: int) -> tuple[list[float], list[int]]:
        clock, ones = Clock(), torch.ones_like(prompt)
        settings_of_all = {"attention_mask": ones, "max_new_tokens": n, "do_sample": False, "streamer": clock}
        clock.put(prompt)
        out = model.generate(prompt, **settings_of_all, **settings)
        del clock.times[1]  # the prompt: the call counts from its beginning
        return np.diff(clock.times).tolist(), out[0, prompt.shape[1] :].tolist()

    return play


def our_player(model: Transformer, make_cache: type[KVCache]) -> Player:
    """This project's `generate`, from the call to each token; making the cache counts."""

    def play(prompt: torch.Tensor, n: int) -> tuple[list[float], list[int]]:
        times = [time.perf_counter()]
        cache = make_cache(model.config, max_len=prompt.shape[1] + n - 1)
        reply = generate(model, prompt[0], n, cache=cache, eos_ids=())
        times += [time.perf_counter() for _ in reply]
        return np.diff(times).tolist(), reply.tokens

    return play


def theirs_of(folder: Path) -> Any:
    """The model of a folder in `transformers`, in float32; it does not stop before it is told to."""
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    model = load(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def players_of(name: str) -> dict[str, Player]:
    """All that are compared, by name; the first is what the goals are stated against."""
    with folder_of(name) as folder:
        ours, theirs = checkpoints.load(folder), theirs_of(folder)
    return {
        "transformers, dynamic": their_player(theirs),
        "transformers, static": their_player(theirs, cache_implementation="static", disable_compile=True),
        **{f"ours, {kind}": our_player(ours, make) for kind, make in CACHES.items()},
    }


@dataclass
class Played:
    """What one player took: seconds of every decode step, and to the first token by prompt length."""

    steps: list[float]
    first: dict[int, list[float]]


def play_in_turns(size: Size, players: dict[str, Player]) -> tuple[dict[str, Played], float, bool]:
    """Let all generate in turns.

    Returns:
        What each took, seconds of reading a step's bytes, and whether all said the same tokens.
    """
    played = {player: Played([], {P: [] for P in PROMPTS}) for player in players}
    read, reading, output = reader_of(size.nbytes_of_step(PROMPTS[0] + size.new_tokens / 2)), [], set()
    prompts = {P: torch.randint(1, size.config.vocab_size, (1, P)) for P in PROMPTS}
    for turn in range(size.turns + 1):  # the first one warms up
        for player, play in players.items():
            for P, prompt in prompts.items():
                (first, *steps), tokens = play(prompt, size.new_tokens + 1 if P == PROMPTS[0] else 1)
                if turn:
                    played[player].first[P].append(first)
                    played[player].steps += steps
                    output.add((P, tuple(tokens)))
            reading.append(seconds_of(read))
    return played, float(np.median(reading)), len(output) == len(PROMPTS)


def share(mine: float, theirs: float, goal: float | None) -> str:
    """ "0.82 yes": the ratio, and whether it is at most the goal, if there is one."""
    verdict = "" if goal is None else (" yes" if mine / theirs <= goal else " NO")
    return f"{mine / theirs:.2f}{verdict}"


def bench_speed(sizes: Sequence[str], threads: Sequence[int]) -> None:
    """Time per output token and time to first token."""
    for name in sizes:
        players = players_of(name)
        for n in threads:
            torch.set_num_threads(n)
            show_speed(name, *play_in_turns(SIZES[name], players))


def show_speed(name: str, played: dict[str, Played], read: float, same: bool) -> None:
    """Print the table of one size and number of threads."""
    size, base, rows = SIZES[name], next(iter(played.values())), []
    for player, its in played.items():
        goals = (size.goal, TTFT_GOAL) if player.startswith("ours") else (None, None)
        step = Timing(tuple(its.steps))
        ratio = share(step.median, float(np.median(base.steps)), goals[0])
        quarters = "–".join(map(milliseconds, np.percentile(its.steps, [25, 75])))
        row = [player, milliseconds(step.median), quarters, ratio, f"{read / step.median:.0%}"]
        for P in PROMPTS:
            mine, theirs = (float(np.median(one.first[P])) for one in (its, base))
            row += [milliseconds(mine), share(mine, theirs, goals[1])]
        rows.append(row)
    heads = ["", "ms a token", "quarters", f"share (≤ {size.goal})", "bandwidth"]
    heads += [text for P in PROMPTS for text in (f"TTFT {P}, ms", f"share (≤ {TTFT_GOAL})")]
    title = f"{name}: {size.config.n_parameters / 1e6:.1f} M parameters, {conditions()}; "
    table(title + f"{size.turns} turns of {size.new_tokens} tokens", heads, rows)
    nbytes = size.nbytes_of_step(PROMPTS[0] + size.new_tokens / 2)
    print(
        f"a token needs {nbytes / 1e6:.1f} MB; reading as many takes {in_words(read)}, "
        f"{nbytes / read / 1e9:.1f} GB/s; all said the same tokens: {'yes' if same else 'NO'}"
    )


CONTEXTS = (128, 256, 512, 1024, 2048)


def step_at(model: Transformer, cache: KVCache) -> Callable[[], None]:
    """A decode step that fills a cache, made full of random rows, and forgets its token again."""
    length = cache.max_len - 1
    k_shape, v_shape = cache.shapes(length)
    for layer in range(cache.n_layers):
        cache.append(layer, torch.randn(k_shape), torch.randn(v_shape))
    cache.advance(length)

    def step() -> None:
        decode_step(model, [[1]], cache)
        cache.truncate(length)

    return step


def bench_context(sizes: Sequence[str], threads: Sequence[int]) -> None:
    """Time of one decode step by the number of keys that it sees."""
    torch.set_num_threads(threads[-1])
    for name in sizes:
        model = model_of(name)
        tasks = {
            f"{kind} {context}": step_at(model, make(model.config, max_len=context))
            for kind, make in CACHES.items()
            for context in CONTEXTS
        }
        tasks["read"] = reader_of(SIZES[name].nbytes_of_step(max(CONTEXTS)))
        show_context(name, in_turns(tasks, turns=9, at_least=0.1))


def show_context(name: str, timings: dict[str, Timing]) -> None:
    """Print times, slopes, and the slope that the bytes would have at the bandwidth that was read with."""
    row_bytes, rows = SIZES[name].config.cache_nbytes_per_token(), []
    for kind in CACHES:
        medians = [timings[f"{kind} {context}"].median for context in CONTEXTS]
        slope = np.polyfit(CONTEXTS, medians, 1)[0]  # seconds a token
        implied = f"{row_bytes / slope / 1e9:.1f}" if slope > 0 else ""
        rows.append([kind, *map(milliseconds, medians), f"{slope * 1e9:,.0f}", implied])
    speed = SIZES[name].nbytes_of_step(max(CONTEXTS)) / timings["read"].median
    heads = ["cache, keys seen", *(f"{context:,}" for context in CONTEXTS), "µs for 1,000 more", "as GB/s"]
    table(f"{name}: ms of a decode step by context, {conditions()}", heads, rows)
    print(
        f"the bytes predict {row_bytes / speed * 1e9:,.0f} µs for 1,000 more ({row_bytes:,} bytes each at "
        f"{speed / 1e9:.1f} GB/s); three times that for the growing cache, which also reads and writes them"
    )


def bench_memory(sizes: Sequence[str], threads: Sequence[int]) -> None:
    """Peak memory over weights and cache, each in a fresh process; Linux only."""
    rows = []
    for name in sizes:
        with folder_of(name) as folder:
            for who in (*CACHES, "transformers"):
                for phase in ("prefill", "decode"):
                    script = [sys.executable, str(Path(__file__).with_name("peak_memory.py"))]
                    command = [*script, str(folder), who, phase, str(threads[-1])]
                    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                    nbytes = json.loads(out.splitlines()[-1])
                    parts = [f"{nbytes[part] / 1e6:.1f}" for part in ("weights", "cache", "over")]
                    rows.append([f"{name}, {who}, {phase}", *parts])
    title = f"Memory: prefill of 2,048 tokens; 24 decode steps up to there; {conditions()}"
    table(title, ["MB, float32", "weights", "cache", "peak over both"], rows)


def training_step_seconds() -> float:
    """Seconds of one step of training the shipped model, the median of 11."""
    torch.manual_seed(0)
    model, tokenizer, times = Transformer(shipped.CONFIG), Tokenizer.of_words(shipped.VOCABULARY), []

    def watched() -> Iterator[torch.Tensor]:
        for rows in batches(tokenizer, seed=0):
            times.append(time.perf_counter())
            yield rows

    train(model, watched(), 12, bar=False)
    return float(np.median(np.diff(times)))


def bench_training(sizes: Sequence[str], threads: Sequence[int]) -> None:
    """Tokens a second of training the shipped model."""
    rows = []
    for n in threads:
        torch.set_num_threads(n)
        taken = training_step_seconds()
        rows.append([n, milliseconds(taken), f"{BATCH * LENGTH / taken:,.0f}"])
    title = f"Training the shipped model: {BATCH} rows of {LENGTH} tokens a step, {conditions()}"
    table(title, ["threads", "ms a step", "tokens a second"], rows)


PARTS = {"speed": bench_speed, "context": bench_context, "memory": bench_memory, "training": bench_training}


def main() -> None:
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="|".join(PARTS))
    parser.add_argument("--size", nargs="+", choices=SIZES, default=[*SIZES], help="which models")
    message = "PyTorch's threads; the last number is for the sections that use one only"
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, min(cores, 2)}), help=message)
    options = parser.parse_args()
    versions = f"Python {platform.python_version()}, PyTorch {torch.__version__}"
    print(f"{versions}, transformers {transformers.__version__}; {cores} processors, {conditions()}")
    for part in options.parts or PARTS:
        print(f"[{part}: {seconds_of(lambda part=part: PARTS[part](options.size, options.threads)):.0f} s]")  # type: ignore[misc]


if __name__ == "__main__":
    main()
