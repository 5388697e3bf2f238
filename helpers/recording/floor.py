"""A decode step by the clock beside how long it must take, and the changes that bring it near.

Milliseconds are those of the fastest of many calls; each step is timed once, and said again from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import numba
import numpy as np
import torch

from helpers.cost.roofline import Roof, Step, Work, attention, decode_step_of, least_time, product
from helpers.measure import in_turns, machine, record_of
from helpers.measure.timing import Task
from helpers.model.attention import attend
from helpers.model.config import ModelConfig
from helpers.model.fast import NarrowLinear, narrowed, speed_up
from helpers.model.sizes import CONFIGS, narrow
from helpers.model.transformer import Transformer
from helpers.recording.clock import fastest, parts_of_steps, step_behind

TOKENS = 256  # rows behind which each step stands
WAYS = {
    "as it is": None,
    "one compiled call": (False, 32),  # all cores or one, bits of a weight
    "all cores share each matrix": (True, 32),
    "half the bytes": (True, 16),
    "a quarter of the bytes": (True, 8),
}


def price_of_start(among_reading: bool = False) -> float:
    """Return the seconds that one operator takes before it computes anything.

    Four models of 1 to 16 layers are so narrow that starting is nearly all of their step: the slope counts.

    Args:
        among_reading: let each product be followed by reading 1 MiB, as if the matrices were large; what the
            reading takes is taken off.
    """
    models = [Transformer(narrow(layers)) for layers in (1, 4, 8, 16)]
    steps = [step_behind(model, TOKENS) for model in models]
    reading = [machine.add_traffic(model) for model in models] if among_reading else []
    return machine.price_of_start(steps, minus=reading).seconds


def ledger(
    model: Transformer, least: Mapping[str, float], start: float, among_reading: float, measured: float
) -> dict[str, float]:
    """Account for what a step takes over its least time, in milliseconds.

    Args:
        least: milliseconds by term, as `roofline.least_time` names them.
        start, among_reading: both prices of an operator, seconds.
        measured: the step by the clock.

    Returns:
        {"least", "matrices", "starts", "rest", "measured"}: what the products with the matrices take longer
        than their bytes need, what starting takes longer, and what is left. The first four add up to the
        last.
    """
    step = step_behind(model, TOKENS)
    inside = parts_of_steps(model, {"step": step}, turns=3)["step"]
    products = sum(isinstance(part, torch.nn.Linear) for part in model.modules())
    n = record_of(step).n_operators
    matrices = inside["matrices"] - 1000 * products * start - least["weights or arithmetic"]
    starts = 1000 * (n - products) * (among_reading - start)
    known = sum(least.values()) + matrices + starts
    return {
        "least": sum(least.values()),
        "matrices": matrices,
        "starts": starts,
        "rest": measured - known,
        "measured": measured,
    }


def under_the_roof(config: ModelConfig, users: int, prompt: int) -> dict[str, tuple[Task, Work]]:
    """Return parts of passes: what to run, and its work.

    Decode for one user and for many, behind 512 tokens each: the matrices of all MLPs, and the attention of
    one layer. Prefill of a prompt: the matrices.
    """
    L, H, Hkv, D = config.n_layers, config.n_heads, config.n_kv_heads, config.head_dim
    C, F = config.hidden_size, config.intermediate_size
    matrices = torch.randn(3 * L, F, C)  # the third of each has as many numbers

    def weights(T: int) -> tuple[Task, Work]:
        x, one = torch.randn(T, C), product(T, C, F, 4)
        work = Work(3 * L * one.operations, 3 * L * one.nbytes)
        return lambda: [torch.nn.functional.linear(x, matrix) for matrix in matrices], work

    q, (k, v) = torch.randn(users, H, 1, D), torch.randn(2, users, Hkv, 512, D)
    one = attention(1, 512, H, Hkv, D, 4)
    attending = partial(attend, q, k, v, torch.ones(1, 512, dtype=torch.bool), D**-0.5)
    return {
        "1 user": weights(1),
        f"{users} users": weights(users),
        "their rows": (attending, Work(users * one.operations, users * one.nbytes)),
        "a prompt": weights(prompt),
    }


def rate_of_loop() -> float:
    """Return the numbers a second that a core widens from 8 bits and multiplies, in its own cache."""
    matrix, scale = narrowed(np.ones((1024, 1024), np.float32), 8)  # 1 MB
    loop = NarrowLinear(matrix, scale, np.zeros(1024, np.float32))
    numba.set_num_threads(1)
    return matrix.size / in_turns({"loop": partial(loop, torch.ones(1, 1024))}, turns=25)["loop"].best


class Ladder:
    """A model's decode step as it is and after each change of WAYS: what it should take, and does."""

    def __init__(self, size: str, cores: int) -> None:
        """Take one of `model.sizes.CONFIGS`, with random weights."""
        self.model, self.cores = Transformer(CONFIGS[size]), cores
        self.measured = cache(self.measured)  # type: ignore[method-assign]
        self.speed = cache(self.speed)  # type: ignore[method-assign]

    def settings(self, way: str) -> tuple[int, int]:
        """Return the cores and the bits of a weight."""
        shared, bits = WAYS[way] or (False, 32)
        return self.cores if shared else 1, bits

    def step(self, way: str, model: Transformer, behind: int) -> Task:
        """Return one decode step of a model after a change, to be called again and again."""
        if WAYS[way] is None:
            return step_behind(model, behind)
        threads, bits = self.settings(way)
        return step_behind(speed_up(model, bits=bits, threads=threads), behind)

    def hollow(self, way: str) -> Task:
        """Return a step of a model with as many layers and hardly any numbers."""
        return self.step(way, Transformer(narrow(self.model.config.n_layers)), 1)

    def measured(self, way: str, behind: int = TOKENS) -> float:
        """Return the milliseconds of a step: timed when first asked."""
        return fastest({way: self.step(way, self.model, behind)}, turns=25)[way]

    def operators(self, way: str) -> int:
        """Return how many a step starts: as many as a hollow one."""
        return record_of(self.hollow(way)).n_operators

    def work(self, bits: int) -> Step:
        """Return the bytes and the operations of a step whose weights have so many bits."""
        return decode_step_of(self.model.config, TOKENS, weight_bytes=bits / 8, row_bytes=4)

    def speed(self, threads: int, bits: int) -> float:
        """Return how many bytes a second come to the cores of such a step: measured when first asked."""
        step = self.work(bits)
        with machine.threads(threads):
            return machine.bandwidth(int(step.weights + step.rows)).bytes_per_second

    def predicted(self, way: str, start: float, rate: float) -> dict[str, float]:
        """Return the milliseconds that a step should take, by what takes them.

        Args:
            start: seconds of an operator.
            rate: numbers a second on one core.
        """
        threads, bits = self.settings(way)
        step = self.work(bits)
        return {
            "starts": 1000 * self.operators(way) * start,
            "bytes": 1000 * (step.weights + step.rows) / self.speed(threads, bits),
            "arithmetic": 1000 * step.operations / 2 / (threads * rate),
        }

    def floor(self, way: str, start: float, rate: float) -> float:
        """Return the least milliseconds of a step, by `least_time` at the costs of `predicted`."""
        threads, bits = self.settings(way)
        here = Roof(2 * threads * rate, self.speed(threads, bits))  # a number is multiplied, and added
        return 1000 * sum(least_time(self.work(bits), here, self.operators(way) * start).values())

    def left(self, way: str, predicted: Mapping[str, float]) -> dict[str, float]:
        """Account for a step, in milliseconds: {"bytes", "arithmetic", "attention", "hollow", "rest"}.

        The attention is what a step behind TOKENS rows takes over one behind a single row. A hollow step is
        one of a model with as many layers and hardly any numbers: its operators are started, and its cores
        wait for each other as often.
        """
        found = {
            "bytes": predicted["bytes"],
            "arithmetic": predicted["arithmetic"],
            "attention": self.measured(way) - self.measured(way, 1),
            "hollow": fastest({"hollow": self.hollow(way)}, turns=25)["hollow"],
        }
        return found | {"rest": self.measured(way) - sum(found.values())}
