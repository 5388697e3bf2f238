"""How near to the limit: the model and its fast twin beside `transformers`, llama.cpp, and the bytes alone.

    python tests/benchmarks/bench_limit.py                          # all models, about five minutes
    python tests/benchmarks/bench_limit.py --models 135M --turns 9  # one of them
    python tests/benchmarks/bench_limit.py --busy 1 2               # also beside one and two busy processes

Batch 1, greedy, 128 tokens of context, the same weights for all, medians of runs that took turns. A machine
may lend its processors to others: compare ratios of one run, not milliseconds of two. llama.cpp takes part
where it is installed (`requirements.txt` beside this file). Not part of the test run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from helpers.measure import in_turns, seconds_of  # noqa: E402 - from the tree this file stands in
from helpers.model import load as checkpoints  # noqa: E402
from helpers.model import published  # noqa: E402
from helpers.model.cache import StaticCache  # noqa: E402
from helpers.model.fast import speed_up  # noqa: E402
from helpers.model.transformer import Transformer  # noqa: E402
from tests.benchmarks import bench_model as base  # noqa: E402
from tests.benchmarks import llama  # noqa: E402
from tests.benchmarks.bench_part1 import table  # noqa: E402
from tests.gguf_file import write  # noqa: E402

PROMPT, LONGEST, NEW = 128, 256, (1, 2, 4, 8)
REAL = "SmolLM2"  # with trained weights, where they can be had
NEW_TOKENS = {name: size.new_tokens for name, size in base.SIZES.items()} | {REAL: 12}  # of one turn
KINDS = {32: GGMLQuantizationType.F32, 16: GGMLQuantizationType.F16, 8: GGMLQuantizationType.Q8_0}
# Logits may be off by this share of the largest, by bits. llama.cpp keeps its cache in 16 bits beside weights
# of 32 too; beside weights of 8 bits it rounds what they are multiplied with as well.
TOLERANCE = {32: 0.003, 16: 0.01, 8: 0.15}


# Bits a weight, and how each is made of the plain model; goals are stated for those that are called "fast".
OURS: dict[str, tuple[int, Callable[[Transformer], Transformer]]] = {
    "plain": (32, lambda model: model),
    "step: one call, one core": (32, partial(speed_up, bits=32, threads=1)),
    "fast, 32 bits": (32, partial(speed_up, bits=32)),
    "fast, 16 bits": (16, partial(speed_up, bits=16)),
    "fast, 8 bits": (8, partial(speed_up, bits=8)),
}
FIRST, STEPS = np.s_[:, 0], np.s_[:, 1:]  # of seconds, (turns, tokens)
SMOL = ("135M", REAL)


def goals(at_most: float, *models: str, bits: Iterable[int] = KINDS) -> dict[tuple[str, int], float]:
    return {(model, each): at_most for model in models for each in bits}


FEWER = [16, 8]  # bits, of goals that float32 cannot reach
OF_THEIRS = goals(0.5, "shipped", bits=FEWER) | goals(0.3, "16M", bits=FEWER) | goals(0.27, *SMOL, bits=FEWER)
# Whose time ours is divided by ({}: of as many bits), of which tokens, and the goals, by model and bits.
SHARES: dict[str, tuple[str, Any, dict[tuple[str, int], float]]] = {
    "llama.cpp": ("llama.cpp, {} bits", STEPS, goals(1.2, *SMOL)),
    "bytes streamed": ("bytes, {} bits", STEPS, goals(1.6, *SMOL, bits=[16])),
    "transformers": ("transformers", STEPS, OF_THEIRS),
    "TTFT, llama.cpp": ("llama.cpp, {} bits", FIRST, goals(1.0, *SMOL)),
    "TTFT, transformers": ("transformers", FIRST, {}),
}
BUSY = {"plain": ("plain", STEPS, goals(1.0, *NEW_TOKENS)), "TTFT, plain": ("plain", FIRST, {})}


class Ours:
    """This project's model, or its fast twin; `run` and `play` as in `Llama`."""

    def __init__(self, model: Transformer, bits: int) -> None:
        self.model, self.bits, self.cache = model, bits, StaticCache(model.config, max_len=LONGEST)
        self.play = base.our_player(model, StaticCache)

    def run(self, tokens: Tensor, keep: int, every: bool = False) -> np.ndarray:
        self.cache.truncate(keep)
        with torch.inference_mode():
            return self.model(tokens, self.cache, last_only=not every)[0].numpy()


class Theirs:
    """A model of `transformers`, in float32; `run` and `play` as in `Llama`."""

    bits = 32

    def __init__(self, folder: Path) -> None:
        self.model, self.cache = base.theirs_of(folder), transformers.DynamicCache()
        self.play = base.their_player(self.model)

    def run(self, tokens: Tensor, keep: int, every: bool = False) -> np.ndarray:
        if gone := self.cache.get_seq_length() - keep:
            self.cache.crop(-gone)
        with torch.inference_mode():
            out = self.model(tokens, past_key_values=self.cache, logits_to_keep=0 if every else 1)
        return out.logits[0].numpy()


Runner = Ours | Theirs | llama.Llama


class Stream:
    """Reads as many bytes as the weights have, once a token; the fastest of three ways: one may mislead."""

    def __init__(self, nbytes: int) -> None:
        numbers = torch.ones(nbytes // 4)
        self.probes: list[Callable[[], Any]] = [numbers.sum, numbers.amax, lambda: numbers.dot(numbers)]

    def play(self, prompt: Tensor, n: int) -> tuple[list[float], list[int]]:
        return [min(map(seconds_of, self.probes)) for _ in range(n)], []


def plain_model(name: str) -> Transformer | None:
    """The model as it is taught; None for the published one where it cannot be had."""
    if name != REAL:
        return base.model_of(name)
    found = published.find()
    return checkpoints.load(found.path, dtype=torch.float32) if found else None


def ours_of(model: Transformer) -> Mapping[str, Runner]:
    """The plain model and its twins, which choose their threads by the load at the time: they are printed."""
    result = {name: Ours(make(model), bits) for name, (bits, make) in OURS.items()}
    print("\nThreads of each:", *[getattr(its.model, "threads", "all") for its in result.values()])
    return result


@contextmanager
def others_of(model: Transformer, threads: int) -> Iterator[dict[str, Runner]]:
    """`transformers`, and llama.cpp with weights of each number of bits, where it is installed."""
    library = llama.library()
    with tempfile.TemporaryDirectory() as result, ExitStack() as stack:
        folder = Path(result)
        checkpoints.save(model, folder)
        others: dict[str, Runner] = {"transformers": Theirs(folder)}
        for bits, kind in KINDS.items() if library else ():
            file = write(folder / f"{bits}.gguf", model, kind, llama.NO_TOKENIZER)
            runner = llama.Llama(library, file, bits, threads, LONGEST)
            stack.callback(runner.close)
            others[f"llama.cpp, {bits} bits"] = runner
        yield others


def errors_of(runners: Mapping[str, Runner], prompt: Tensor) -> dict[str, float]:
    """By what share of the largest logit each is off the first: in a prefill, a pass of some tokens, of one.

    SystemExit where that is over its tolerance.
    """
    right, errors = None, {}
    for name, runner in runners.items():
        passes = [(0, PROMPT - 9), (PROMPT - 9, PROMPT - 1), (PROMPT - 1, PROMPT)]
        logits = np.concatenate([runner.run(prompt[:, a:b], a, every=True).copy() for a, b in passes])
        right = logits if right is None else right
        errors[name] = error = float(abs(logits - right).max() / abs(right).max())
        if not error <= (most := TOLERANCE[runner.bits]):
            message = f"logits are off by {error:.2%} of the largest; expected {most:.1%} at most"
            raise SystemExit(f"{name}: {message}")
    return errors


def play_in_turns(players: Mapping[str, Any], prompt: Tensor, n: int, turns: int) -> dict[str, np.ndarray]:
    """Let all generate, in turns, n tokens after the first; seconds of each token, (turns, 1 + n)."""
    taken: dict[str, list[list[float]]] = {name: [] for name in players}
    for _ in range(turns + 1):
        for name, player in players.items():
            taken[name].append(player.play(prompt, n + 1)[0])
    return {name: np.array(seconds[1:]) for name, seconds in taken.items()}  # the first one warms up


def bench(name: str, model: Transformer, threads: int, turns: int) -> None:
    """Print the tables of one model: ratios and goals, what they are made of, passes of several tokens."""
    V, size = model.config.vocab_size, model.config.n_parameters
    prompt = torch.randint(1, V, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    with others_of(model, threads) as others:
        runners = {**ours_of(model), **others}
        errors = errors_of(runners, prompt)
        streams = {f"bytes, {bits} bits": Stream(size * bits // 8) for bits in KINDS}
        taken = play_in_turns({**runners, **streams}, prompt, NEW_TOKENS[name], turns)
        show_ratios(name, f"{name}: {size / 1e6:.1f} M parameters", taken, SHARES)
        show_times(taken, errors)
        show_widths(runners, prompt)


def bench_busy(name: str, model: Transformer, n: int, turns: int) -> None:
    """Print the tables of ours beside n busy processes, with which they were made, too."""
    with neighbours(n):
        prompt = torch.randint(1, model.config.vocab_size, (1, PROMPT))
        taken = play_in_turns(ours_of(model), prompt, min(8, NEW_TOKENS[name]), turns)
    show_ratios(name, f"{name} beside {n} busy processes", taken, BUSY)
    show_times(taken, {})


def show_ratios(model: str, title: str, taken: Mapping[str, np.ndarray], shares: Mapping[str, Any]) -> None:
    """Print the times of ours as shares of others', with the goals."""
    rows = []
    for name, (bits, _) in OURS.items():
        rows.append([name])
        for other, which, at_most in shares.values():
            if (its := taken.get(other.format(bits))) is None:
                rows[-1].append("not there")
                continue
            ratio, goal = np.median(taken[name][which]) / np.median(its[which]), at_most.get((model, bits))
            verdict = f" ≤ {goal} {'held' if ratio <= goal else 'missed'}" if goal else ""
            rows[-1].append(f"{ratio:.2f}" + verdict * name.startswith("fast"))
    table(f"{title}; {base.conditions()}: time as a share of", ["", *shares], rows)


def show_times(taken: Mapping[str, np.ndarray], errors: Mapping[str, float]) -> None:
    """Print milliseconds, and how far off the logits are."""
    rows = []
    for name, seconds in taken.items():
        quarters = "–".join(map(base.milliseconds, np.percentile(seconds[STEPS], [25, 75])))
        step, first = (base.milliseconds(float(np.median(seconds[which]))) for which in (STEPS, FIRST))
        first = "" if name.startswith("bytes") else first
        rows.append([name, step, quarters, first, f"{errors[name]:.2%}" if name in errors else ""])
    heads = ["", "ms a token", "quarters", f"TTFT {PROMPT}, ms", "logits off, of the largest"]
    table("What that is made of", heads, rows)


def show_widths(runners: Mapping[str, Runner], prompt: Tensor) -> None:
    """Print the time of passes of several new tokens, as drafts make them: all their logits are wanted."""
    shown = {name: runner for name, runner in runners.items() if not name.startswith("step")}
    tasks: dict[str, Callable[[], Any]] = {}
    for name, runner in shown.items():
        runner.run(prompt, 0)
        for T in NEW:
            tasks[f"{name} {T}"] = partial(runner.run, prompt[:, :T], PROMPT, every=True)
    timings = in_turns(tasks, turns=5, at_least=0.05)
    rows = [[name, *(base.milliseconds(timings[f"{name} {T}"].median) for T in NEW)] for name in shown]
    table("ms of a pass by new tokens in it", ["", *map(str, NEW)], rows)


@contextmanager
def neighbours(n: int) -> Iterator[None]:
    """Keep n processors busy meanwhile; a neighbour ends when this process does."""
    busy = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
    with ExitStack() as stack:
        for _ in range(n):  # on leaving, each is killed, then waited for
            stack.callback(stack.enter_context(subprocess.Popen([sys.executable, "-c", busy])).kill)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=NEW_TOKENS, default=[*NEW_TOKENS])
    parser.add_argument("--threads", type=int, default=min(os.cpu_count() or 1, 2), help="of each model")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument(
        "--busy", nargs="*", type=int, default=[], help="busy processes beside it, tables for each"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    there = "" if llama.library() else "; no llama.cpp: pip install -r tests/benchmarks/requirements.txt"
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {base.conditions()}{there}")
    for name in options.models:
        if model := plain_model(name):
            bench(name, model, options.threads, options.turns)
            for n in options.busy:
                bench_busy(name, model, n, options.turns)
    print(f"\nAfterwards: {base.conditions()}")


if __name__ == "__main__":
    main()
