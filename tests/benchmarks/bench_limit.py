"""Compare this project's generation speed with `transformers`, llama.cpp and the memory bandwidth.

    python -m tests.benchmarks.bench_limit                          # all models, about five minutes
    python -m tests.benchmarks.bench_limit --models 135M --turns 9  # only one model

The taught model and its fast versions are measured. All programs run greedy decoding in turns, with the same
weights, batch size 1 and 128 tokens of context. The tables have medians. Other processes may use the same
processors. Therefore, compare ratios within one run of this benchmark, not milliseconds between two runs.
llama.cpp is measured if it is installed (see `requirements.txt` in this folder). pytest does not run this
benchmark.

In prefill, weights with 16 or 8 bits are converted to float32. Products in bfloat16 would take a third less
time, but the logits would be off by 1%.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType
from torch import Tensor

from helpers.model import load as checkpoints
from helpers.model import published
from helpers.model.cache import StaticCache
from helpers.model.fast import speed_up
from helpers.model.generate import generate
from helpers.model.transformer import Transformer
from helpers.timing import seconds_per_call
from tests.benchmarks import common, llama
from tests.gguf_file import write

PROMPT, LONGEST = 128, 256
REAL = "SmolLM2"  # with trained weights, where they can be had
NEW_TOKENS = {"shipped": 64, "16M": 32, "135M": 12, REAL: 12}  # of one turn
KINDS = {32: GGMLQuantizationType.F32, 16: GGMLQuantizationType.F16, 8: GGMLQuantizationType.Q8_0}
# Logits may be off by this share of the largest, by bits. llama.cpp keeps its cache in 16 bits beside weights
# of 32 too; beside weights of 8 bits it rounds what they are multiplied with as well.
TOLERANCE = {32: 0.003, 16: 0.01, 8: 0.15}
# Bits a weight, and how each is made of the plain model.
OURS: dict[str, tuple[int, Callable[[Transformer], Transformer]]] = {
    "plain": (32, lambda model: model),
    "fast, one core": (32, partial(speed_up, bits=32, threads=1)),
    "fast, 32 bits": (32, partial(speed_up, bits=32)),
    "fast, 16 bits": (16, partial(speed_up, bits=16)),
    "fast, 8 bits": (8, partial(speed_up, bits=8)),
}
FIRST, STEPS = np.s_[:, 0], np.s_[:, 1:]  # of seconds, (turns, tokens)
SHARES: dict[str, tuple[str, Any]] = {  # whose time ours is divided by ({}: of as many bits), of which tokens
    "llama.cpp": ("llama.cpp, {} bits", STEPS),
    "bytes streamed": ("bytes, {} bits", STEPS),
    "transformers": ("transformers", STEPS),
    "TTFT, llama.cpp": ("llama.cpp, {} bits", FIRST),
    "TTFT, transformers": ("transformers", FIRST),
    "TTFT, 32 bits": ("fast, 32 bits", FIRST),
}


class Ours:
    """This project's model or a fast version of it. For `run` and `play`, see `Llama`."""

    def __init__(self, model: Transformer, bits: int) -> None:
        self.model, self.bits, self.cache = model, bits, StaticCache(model.config, max_len=LONGEST)

    def run(self, tokens: Tensor, keep: int, every: bool = False) -> np.ndarray:
        self.cache.truncate(keep)
        with torch.inference_mode():
            return self.model(tokens, self.cache, last_only=not every)[0].numpy()

    def play(self, prompt: Tensor, n: int) -> tuple[list[float], list[int]]:
        times = [time.perf_counter()]  # making the cache counts
        cache = StaticCache(self.model.config, max_len=prompt.shape[1] + n - 1)
        reply = generate(self.model, prompt[0], n, cache=cache, eos_ids=())
        times += [time.perf_counter() for _ in reply]
        return np.diff(times).tolist(), reply.tokens


class Theirs:
    """A `transformers` model in float32. For `run` and `play`, see `Llama`."""

    bits = 32

    def __init__(self, model: Transformer) -> None:
        self.model, self.cache = common.theirs_of(model), transformers.DynamicCache()
        self.times: list[float] = []

    def run(self, tokens: Tensor, keep: int, every: bool = False) -> np.ndarray:
        if gone := self.cache.get_seq_length() - keep:
            self.cache.crop(-gone)
        with torch.inference_mode():
            out = self.model(tokens, past_key_values=self.cache, logits_to_keep=0 if every else 1)
        return out.logits[0].numpy()

    def play(self, prompt: Tensor, n: int) -> tuple[list[float], list[int]]:
        self.times = [time.perf_counter()]
        settings = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": n, "do_sample": False}
        out = self.model.generate(prompt, **settings, streamer=self)
        del self.times[1]  # the prompt: the call counts from its beginning
        return np.diff(self.times).tolist(), out[0, prompt.shape[1] :].tolist()

    def put(self, tokens: Tensor) -> None:
        """Record the time. `transformers` calls its streamer first with the prompt, then with each token."""
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Do nothing. `transformers` calls this method of its streamer at the end of a reply."""


Runner = Ours | Theirs | llama.Llama


class Stream:
    """A task that only reads `nbytes` bytes per token, which is the size of the weights.

    Three PyTorch reductions read them, and the time of the fastest one is used, because a single one might be
    slow for other reasons.
    """

    def __init__(self, nbytes: int) -> None:
        numbers = torch.ones(nbytes // 4)
        self.probes: list[Callable[[], Any]] = [numbers.sum, numbers.amax, lambda: numbers.dot(numbers)]

    def play(self, prompt: Tensor, n: int) -> tuple[list[float], list[int]]:
        return [min(map(seconds_per_call, self.probes)) for _ in range(n)], []


def plain_model(name: str) -> Transformer | None:
    """Return the model with this name, in its taught form.

    If the published model is not on this machine and cannot be downloaded, return None.
    """
    if name != REAL:
        return common.model_of(name)
    found = published.find_published()
    return checkpoints.load(found, dtype=torch.float32) if found else None


@contextmanager
def runners_of(model: Transformer, threads: int) -> Iterator[dict[str, Runner]]:
    """Provide the programs to compare, by name, inside the `with` block.

    They are this project's model and its fast versions, `transformers`, and, if it is installed, llama.cpp
    with 32, 16 and 8 bits per weight.
    """
    library = llama.library()
    runners: dict[str, Runner] = {name: Ours(make(model), bits) for name, (bits, make) in OURS.items()}
    runners["transformers"] = Theirs(model)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for bits, kind in KINDS.items() if library else ():
            file = write(Path(folder) / f"{bits}.gguf", model, kind, llama.NO_TOKENIZER)
            runner = llama.Llama(library, file, bits, threads, LONGEST)
            stack.callback(runner.close)
            runners[f"llama.cpp, {bits} bits"] = runner
        yield runners


def errors_of(runners: Mapping[str, Runner], prompt: Tensor) -> dict[str, float]:
    """Return each runner's largest error in the logits, relative to the largest logit of the first runner.

    The logits are those of three passes: a prefill, a pass over a few tokens, and a pass over one token.

    Raises:
        SystemExit: an error is above its tolerance in TOLERANCE.
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


def bench(name: str, model: Transformer, threads: int, turns: int) -> None:
    """Measure one model, and print two tables: the ratios of times, and the times themselves."""
    V, size, n = model.config.vocab_size, model.config.n_parameters, NEW_TOKENS[name]
    prompt = torch.randint(1, V, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    with runners_of(model, threads) as runners:
        errors = errors_of(runners, prompt)
        streams = {f"bytes, {bits} bits": Stream(size * bits // 8) for bits in KINDS}
        times: dict[str, list[list[float]]] = {each: [] for each in (*runners, *streams)}
        used = {each: threads_of(runner, threads) for each, runner in runners.items()}
        for _ in range(turns + 1):
            for each, player in (runners | streams).items():
                times[each].append(player.play(prompt, n + 1)[0])
    taken = {each: np.array(seconds[1:]) for each, seconds in times.items()}  # the first one warms up
    show_ratios(f"{name}: {size / 1e6:.1f} M parameters", taken)
    show_times(taken, errors, used)


def threads_of(runner: Runner, threads: int) -> int:
    """Return the number of threads that share each matrix product in a decode step.

    A fast version of the model has a number of its own. All other programs use `threads`.
    """
    return getattr(getattr(runner, "model", None), "threads", threads)


def show_ratios(title: str, taken: Mapping[str, np.ndarray]) -> None:
    """Print the times of this project's models, divided by the times of the other programs."""
    rows = []
    for name, (bits, _) in OURS.items():
        rows.append([name])
        for other, which in SHARES.values():
            its = taken.get(other.format(bits))
            ratio = None if its is None else np.median(taken[name][which]) / np.median(its[which])
            rows[-1].append("not there" if ratio is None else f"{ratio:.2f}")
    common.table(f"{title}, time as a share of", ["", *SHARES], rows)


def show_times(
    taken: Mapping[str, np.ndarray], errors: Mapping[str, float], threads: Mapping[str, int]
) -> None:
    """Print each program's number of threads, times in milliseconds, and largest error in the logits."""
    rows = []
    for name, seconds in taken.items():
        step, low, high = (f"{ms:.2f}" for ms in np.percentile(1000 * seconds[STEPS], [50, 25, 75]))
        first = f"{1000 * np.median(seconds[FIRST]):.2f}" if name in errors else ""
        error = f"{errors[name]:.2%}" if name in errors else ""
        rows.append([name, threads.get(name, ""), step, f"{low}–{high}", first, error])
    heads = ["", "threads", "ms a token", "quarters", f"TTFT {PROMPT}, ms", "logits off, of the largest"]
    common.table("What that is made of", heads, rows)


def main() -> None:
    models = {"nargs": "+", "choices": NEW_TOKENS, "default": [*NEW_TOKENS]}
    options = common.options(__doc__, turns=7, threads=min(os.cpu_count() or 1, 2), models=models)
    if not llama.library():
        print("no llama.cpp: pip install -r tests/benchmarks/requirements.txt")
    for name in options.models:
        if model := plain_model(name):
            bench(name, model, options.threads, options.turns)


if __name__ == "__main__":
    main()
