"""What Part II's model costs beside `transformers` on the same weights: time, bandwidth, memory, training.

    python tests/benchmarks/bench_model.py                          # all tables, about ten minutes
    python tests/benchmarks/bench_model.py speed --size 16M         # one table, one size
    python tests/benchmarks/bench_model.py speed context --threads 1

Batch 1, greedy. Times are medians of runs that took turns, on a machine that should be idle: PyTorch's
threads wait for each other in busy loops, so that other work slows two threads far more than one. Memory
is measured in a process of its own (`peak_memory.py` beside this file). Not part of the test run.
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
sys.path[:0] = [str(ROOT), str(ROOT / ".ci")]

from helpers.measure import Timing, in_turns, in_words  # noqa: E402 - from the tree this file stands in
from helpers.model import load as checkpoints  # noqa: E402
from helpers.model import shipped  # noqa: E402
from helpers.model.cache import GrowingCache, KVCache, StaticCache  # noqa: E402
from helpers.model.config import ModelConfig  # noqa: E402
from helpers.model.generate import decode_step, generate  # noqa: E402
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


def smaller_kin(**sizes: int) -> ModelConfig:
    """A config in SmolLM2's manner."""
    return ModelConfig(**sizes, max_seq_len=2048, rope_theta=100_000.0, tied=True)  # type: ignore[arg-type]


SIZES = {
    "shipped": Size(shipped.CONFIG, new_tokens=64, turns=15, goal=0.6),
    "16M": Size(
        smaller_kin(
            n_layers=8,
            n_heads=6,
            n_kv_heads=2,
            head_dim=64,
            hidden_size=384,
            intermediate_size=1024,
            vocab_size=8192,
        ),
        new_tokens=32,
        turns=11,
        goal=0.85,
    ),
    # SmolLM2-135M: https://github.com/huggingface/smollm
    "135M": Size(
        smaller_kin(
            n_layers=30,
            n_heads=9,
            n_kv_heads=3,
            head_dim=64,
            hidden_size=576,
            intermediate_size=1536,
            vocab_size=49152,
        ),
        new_tokens=12,
        turns=5,
        goal=0.95,
    ),
}
TTFT_GOAL = 1.05
PROMPTS = (128, 512)


@contextmanager
def folder_of(name: str, dtype: torch.dtype = torch.float32) -> Iterator[Path]:
    """A checkpoint of this size in a temporary folder: trained weights in the smallest, else random ones."""
    torch.manual_seed(0)
    model = shipped.load()[0] if name == "shipped" else Transformer(SIZES[name].config)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.save(model.to(dtype), folder)
        del model
        yield Path(folder)


def random_prompt(config: ModelConfig, P: int) -> torch.Tensor:
    """Ids, (1, P)."""
    return torch.randint(1, config.vocab_size, (1, P), generator=torch.Generator().manual_seed(P))


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def load() -> str:
    """How busy the machine was in the last minute, in processors."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


# --- time per output token, time to first token ---


class Clock:
    """A streamer of `transformers`: notes when each token came."""

    def __init__(self) -> None:
        self.times: list[float] = [time.perf_counter()]
        self.seen_prompt = False

    def put(self, tokens: torch.Tensor) -> None:
        """Called with the prompt first, then with each token."""
        if self.seen_prompt:
            self.times.append(time.perf_counter())
        self.seen_prompt = True

    def end(self) -> None:
        """Called at the end."""


def their_player(model: Any, **settings: Any) -> Player:
    """`transformers.generate`, from the call to each token."""

    def play(prompt: torch.Tensor, n: int) -> tuple[list[float], list[int]]:
        clock, ones = Clock(), torch.ones_like(prompt)
        out = model.generate(
            prompt, attention_mask=ones, max_new_tokens=n, do_sample=False, streamer=clock, **settings
        )
        return np.diff(clock.times).tolist(), out[0, prompt.shape[1] :].tolist()

    return play


def our_player(model: Transformer, make_cache: type[KVCache]) -> Player:
    """This project's `generate`, from the call to each token; making the cache counts."""

    def play(prompt: torch.Tensor, n: int) -> tuple[list[float], list[int]]:
        times = [time.perf_counter()]
        rows = prompt.shape[1] + n - 1
        cache = make_cache(model.config, max_len=rows, dtype=model.embed_tokens.weight.dtype)
        reply = generate(model, prompt[0], n, cache=cache, eos_ids=())
        for _ in reply:
            times.append(time.perf_counter())
        return np.diff(times).tolist(), reply.tokens

    return play


def load_theirs(folder: Path, dtype: torch.dtype) -> Any:
    """The model of `transformers`, in evaluation mode, told not to stop at `<eos>`."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def players_of(folder: Path, dtype: torch.dtype) -> dict[str, Player]:
    """All that are compared, by name; the first is what the goals are stated against."""
    theirs, ours = load_theirs(folder, dtype), checkpoints.load(folder)
    return {
        "transformers, dynamic": their_player(theirs),
        "transformers, static": their_player(theirs, cache_implementation="static", disable_compile=True),
        **{f"ours, {name}": our_player(ours, make) for name, make in CACHES.items()},
    }


def reader_of(nbytes: int) -> Callable[[], Any]:
    """Read as many bytes as a token needs, from memory or from the processor's cache if they fit there."""
    numbers = torch.ones(nbytes // 4)
    return numbers.sum


def nbytes_per_token(config: ModelConfig, context: float, dtype: torch.dtype) -> int:
    """What one decode step must read: every weight (the readout reads the embedding's) and the cache."""
    return int(dtype.itemsize * config.n_parameters + context * config.cache_nbytes_per_token(dtype.itemsize))


def play_in_turns(
    name: str, players: dict[str, Player], dtype: torch.dtype
) -> tuple[dict[str, list[float]], dict[str, dict[int, list[float]]], list[float], bool]:
    """Let all generate in turns.

    Returns:
        Seconds of every decode step, seconds to the first token by prompt length, seconds of reading as many
        bytes, and whether all said the same tokens.
    """
    size = SIZES[name]
    steps: dict[str, list[float]] = {player: [] for player in players}
    first: dict[str, dict[int, list[float]]] = {player: {P: [] for P in PROMPTS} for player in players}
    read = reader_of(nbytes_per_token(size.config, PROMPTS[0] + size.new_tokens / 2, dtype))
    reading: list[float] = []
    said = set()
    for turn in range(size.turns + 1):  # the first one warms up
        for player, play in players.items():
            for P in PROMPTS:
                n = size.new_tokens + 1 if P == PROMPTS[0] else 1
                seconds, tokens = play(random_prompt(size.config, P), n)
                if turn:
                    first[player][P].append(seconds[0])
                    steps[player] += seconds[1:]
                    said.add((P, tuple(tokens)))
            start = time.perf_counter()
            read()
            reading.append(time.perf_counter() - start)
    return steps, first, reading, len(said) == len(PROMPTS)


def share(mine: float, theirs: float, goal: float | None) -> str:
    """ "0.82 yes": the ratio, and whether it is at most the goal, if there is one."""
    verdict = "" if goal is None else (" yes" if mine / theirs <= goal else " NO")
    return f"{mine / theirs:.2f}{verdict}"


def bench_speed(sizes: Sequence[str], threads: Sequence[int]) -> None:
    """Time per output token and time to first token; bfloat16 with the last number of threads only."""
    for name in sizes:
        for dtype in (torch.float32, torch.bfloat16):
            with folder_of(name, dtype) as folder:
                players = players_of(folder, dtype)
                for n in threads if dtype == torch.float32 else threads[-1:]:
                    torch.set_num_threads(n)
                    show_speed(name, dtype, n, *play_in_turns(name, players, dtype))


def show_speed(
    name: str,
    dtype: torch.dtype,
    threads: int,
    steps: dict[str, list[float]],
    first: dict[str, dict[int, list[float]]],
    reading: list[float],
    same: bool,
) -> None:
    """Print the table of one size, dtype and number of threads."""
    size = SIZES[name]
    context = PROMPTS[0] + size.new_tokens / 2
    nbytes = nbytes_per_token(size.config, context, dtype)
    base, read = next(iter(steps)), float(np.median(reading))
    stated = dtype == torch.float32  # the goals are for float32
    rows = []
    for player, seconds in steps.items():
        ours, timing = player.startswith("ours"), Timing(tuple(seconds))
        low, high = timing.spread
        goal = size.goal if ours and stated else None
        row = [player, milliseconds(timing.median), f"{milliseconds(low)}–{milliseconds(high)}"]
        row += [share(timing.median, float(np.median(steps[base])), goal), f"{read / timing.median:.0%}"]
        for P in PROMPTS:
            mine, theirs = (float(np.median(first[who][P])) for who in (player, base))
            row += [milliseconds(mine), share(mine, theirs, TTFT_GOAL if ours and stated else None)]
        rows.append(row)
    heads = ["", "ms a token", "quarters", f"share (≤ {size.goal})", "bandwidth"]
    heads += [text for P in PROMPTS for text in (f"TTFT {P}, ms", f"share (≤ {TTFT_GOAL})")]
    title = (
        f"{name}: {size.config.n_parameters / 1e6:.1f} M parameters, {str(dtype)[6:]}, threads: {threads}; "
    )
    title += f"{size.turns} turns of {size.new_tokens} tokens, load {load()}"
    table(title, heads, rows)
    print(
        f"a token needs {nbytes / 1e6:.1f} MB; reading as many takes {in_words(read)}, "
        f"{nbytes / read / 1e9:.1f} GB/s; all said the same tokens: {'yes' if same else 'NO'}"
    )


# --- where the time of a step goes ---

KINDS = {  # what an operator's name contains, in the order of looking
    "attention core": ("scaled_dot_product", "flash"),
    "matrix products": ("mm", "mv", "linear", "matmul", "bmm", "gemm"),
    "copies": ("cat", "copy", "contiguous", "clone", "_to_copy", "fill_", "zeros", "empty"),
    "views": (
        *("view", "transpose", "slice", "select", "strided", "split", "chunk", "narrow", "expand", "detach"),
        *("unflatten", "flatten", "reshape", "squeeze", "alias", "permute", "::t", "::to"),
    ),
}


def kind_of(operator: str) -> str:
    """The line of the profile that an operator belongs to."""
    for kind, parts in KINDS.items():
        if any(operator.endswith(part) if part.startswith("::") else part in operator for part in parts):
            return kind
    return "number by number"


def bench_profile(sizes: Sequence[str], threads: Sequence[int]) -> None:
    """Decode steps under torch.profiler, by kind of operator; float32, context 128."""
    torch.set_num_threads(threads[-1])
    for name in sizes:
        with folder_of(name) as folder:
            model = checkpoints.load(folder)
        cache = StaticCache(model.config, max_len=PROMPTS[0])
        fill(cache, PROMPTS[0] - 1)
        step = step_at(model, cache)
        plain = in_turns({"step": step}, turns=5, at_least=0.2)["step"].median
        show_profile(name, plain, profile_of(step, n=10))


def profile_of(step: Callable[[], Any], n: int) -> dict[str, tuple[float, float]]:
    """Microseconds and calls of one step by kind of operator; the rest of its time is Python's."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        for _ in range(n):
            step()
        whole = (time.perf_counter() - start) / n * 1e6
    found: dict[str, tuple[float, float]] = {}
    for event in profiler.key_averages():
        kind = kind_of(event.key)
        micro, calls = found.get(kind, (0.0, 0.0))
        found[kind] = (micro + event.self_cpu_time_total / n, calls + event.count / n)
    found["Python in between"] = (whole - sum(micro for micro, _ in found.values()), 0)
    return found


def show_profile(name: str, plain: float, found: dict[str, tuple[float, float]]) -> None:
    """Print the profile of one size, its largest line first."""
    whole = sum(micro for micro, _ in found.values())
    lines = sorted(found.items(), key=lambda item: -item[1][0])
    rows = [
        [kind, f"{micro:,.0f}", f"{micro / whole:.0%}", f"{calls:.0f}" if calls else ""]
        for kind, (micro, calls) in lines
    ]
    title = f"{name}: a decode step under torch.profiler, threads: {torch.get_num_threads()}, load {load()}"
    table(title, ["", "µs", "share", "calls"], rows)
    print(f"{in_words(whole / 1e6)} with the profiler watching, {in_words(plain)} without")


# --- time against context ---

CONTEXTS = (128, 256, 512, 1024, 2048)


def fill(cache: KVCache, length: int) -> None:
    """Put random rows into an empty cache."""
    k_shape, v_shape = cache.shapes(length)
    for layer in range(cache.n_layers):
        cache.append(layer, torch.randn(k_shape).to(cache.dtype), torch.randn(v_shape).to(cache.dtype))
    cache.advance(length)


def step_at(model: Transformer, cache: KVCache) -> Callable[[], None]:
    """A decode step that can be repeated: it forgets its token again."""
    length = cache.length

    def step() -> None:
        decode_step(model, [[1]], cache)
        cache.truncate(length)

    return step


def bench_context(sizes: Sequence[str], threads: Sequence[int]) -> None:
    """Time of one decode step by the number of keys that it sees, float32."""
    torch.set_num_threads(threads[-1])
    for name in sizes:
        with folder_of(name) as folder:
            model = checkpoints.load(folder)
        tasks: dict[str, Callable[[], Any]] = {}
        for kind, make in CACHES.items():
            for context in CONTEXTS:
                cache = make(model.config, max_len=context)
                fill(cache, context - 1)
                tasks[f"{kind} {context}"] = step_at(model, cache)
        tasks["read"] = reader_of(nbytes_per_token(model.config, max(CONTEXTS), torch.float32))
        show_context(name, model.config, in_turns(tasks, turns=9, at_least=0.1))


def show_context(name: str, config: ModelConfig, timings: dict[str, Timing]) -> None:
    """Print times, slopes, and the slope that the bytes would have at the bandwidth that was read with."""
    rows = []
    for kind in CACHES:
        medians = [timings[f"{kind} {context}"].median for context in CONTEXTS]
        slope = np.polyfit(CONTEXTS, medians, 1)[0]  # seconds a token
        implied = f"{config.cache_nbytes_per_token() / slope / 1e9:.1f}" if slope > 0 else ""
        rows.append([kind, *map(milliseconds, medians), f"{slope * 1e9:,.0f}", implied])
    speed = nbytes_per_token(config, max(CONTEXTS), torch.float32) / timings["read"].median
    row_bytes = config.cache_nbytes_per_token()
    predicted = row_bytes / speed * 1e9
    heads = ["cache, keys seen", *(f"{context:,}" for context in CONTEXTS), "µs for 1,000 more", "as GB/s"]
    title = (
        f"{name}: ms of a decode step by context, float32, threads: {torch.get_num_threads()}, load {load()}"
    )
    table(title, heads, rows)
    print(
        f"the bytes predict {predicted:,.0f} µs for 1,000 more ({row_bytes:,} bytes each at "
        f"{speed / 1e9:.1f} GB/s); three times that for the growing cache, which also reads and writes them"
    )


# --- memory ---


def bench_memory(sizes: Sequence[str], threads: Sequence[int]) -> None:
    """Peak memory over weights and cache, each in a fresh process."""
    if not Path("/proc/self/status").exists():
        print("\nmemory: measured on Linux only")
        return
    runs = [(who, phase) for who in (*CACHES, "transformers") for phase in ("prefill", "decode")]
    rows = []
    for name in sizes:
        with folder_of(name) as folder:
            for who, phase in runs:
                done = measure_memory(folder, who, phase, threads[-1])
                over, cache, weights = (f"{done[part] / 1e6:.1f}" for part in ("over", "cache", "weights"))
                rows.append([f"{name}, {who}, {phase}", weights, cache, over])
    heads = ["MB, float32", "weights", "cache", "peak over both"]
    table(f"Memory: prefill of 2,048 tokens; 24 decode steps up to there; load {load()}", heads, rows)


def measure_memory(folder: Path, who: str, phase: str, threads: int) -> dict[str, int]:
    """Bytes of weights and cache, and the peak over both, from a fresh process."""
    script = Path(__file__).with_name("peak_memory.py")
    command = [sys.executable, str(script), str(folder), who, phase, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


# --- training ---


def training_step_seconds(threads: int, steps: int = 12) -> float:
    """Seconds of one step of training the small model, the median."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, tokenizer = Transformer(shipped.CONFIG), Tokenizer.of_words(shipped.VOCABULARY)
    times = []

    def watched() -> Iterator[torch.Tensor]:
        for rows in batches(tokenizer, seed=0):
            times.append(time.perf_counter())
            yield rows

    train(model, watched(), steps, bar=False)
    return float(np.median(np.diff(times)))


def bench_training(sizes: Sequence[str], threads: Sequence[int], budget: float = 60.0) -> None:
    """Tokens a second of training the shipped model from nothing, and its loss after a minute."""
    seconds = {n: training_step_seconds(n) for n in threads}
    rows = [[n, milliseconds(taken), f"{BATCH * LENGTH / taken:,.0f}"] for n, taken in seconds.items()]
    title = f"Training the shipped model: {BATCH} rows of {LENGTH} tokens a step, load {load()}"
    table(title, ["threads", "ms a step", "tokens a second"], rows)
    best = min(seconds, key=lambda n: seconds[n])
    torch.set_num_threads(best)
    torch.manual_seed(0)
    model, tokenizer = Transformer(shipped.CONFIG), Tokenizer.of_words(shipped.VOCABULARY)
    start, steps = time.perf_counter(), max(50, int(budget / seconds[best]))
    losses = train(model, batches(tokenizer, seed=0), steps, bar=False)
    print(
        f"{steps} steps, {time.perf_counter() - start:.0f} s, threads: {best}, loss {losses[0]:.2f} at "
        f"first, {np.mean(losses[-50:]):.3f} over the last 50 steps"
    )


# --- notebooks ---


def bench_notebooks(sizes: Sequence[str], threads: Sequence[int]) -> None:
    """Part II's notebooks in fresh kernels, from their own folder; nothing is written."""
    import nbformat
    from run_notebooks import execute

    rows = []
    for path in sorted((ROOT / "notebooks").glob("0[5-8]*.ipynb")):
        book = nbformat.read(path, as_version=4)
        start = time.perf_counter()
        execute(book, path.parent)
        seconds, nbytes = time.perf_counter() - start, path.stat().st_size
        limit = 120 if path.stem.startswith("06") else 60
        fine = "yes" if seconds < limit else "NO", "yes" if nbytes < 400_000 else "NO"
        rows.append(
            [path.stem, f"{seconds:.0f} s", f"< {limit} s {fine[0]}", f"{nbytes / 1000:.0f} KB", fine[1]]
        )
    heads = ["", "with kernel start", "goal", "file", "under 400 KB"]
    table(f"Notebooks, one run each, load {load()}", heads, rows)


PARTS = {
    "speed": bench_speed,
    "profile": bench_profile,
    "context": bench_context,
    "memory": bench_memory,
    "training": bench_training,
    "notebooks": bench_notebooks,
}


def main() -> None:
    processors = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="|".join(PARTS))
    parser.add_argument("--size", nargs="+", choices=list(SIZES), default=list(SIZES), help="which models")
    parser.add_argument(
        "--threads",
        nargs="+",
        type=int,
        default=sorted({1, min(processors, 2)}),
        help="PyTorch's threads; the last number is for the sections that use one only",
    )
    options = parser.parse_args()
    print(
        f"Python {platform.python_version()}, PyTorch {torch.__version__} "
        f"({torch.backends.cpu.get_cpu_capability()}), transformers {transformers.__version__}; {processors} "
        f"processors, {torch.get_num_threads()} threads by default, OMP_NUM_THREADS "
        f"{os.environ.get('OMP_NUM_THREADS', 'not set')}, load {load()}"
    )
    for part in options.parts or list(PARTS):
        start = time.perf_counter()
        PARTS[part](options.size, options.threads)
        print(f"[{part}: {time.perf_counter() - start:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
