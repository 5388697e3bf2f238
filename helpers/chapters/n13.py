"""Notebook 13: the measured time of a decode step, after each of four changes, and its lower bound.

All times in milliseconds are those of the fastest of many calls. ladder.json stores times of two idle cores,
which are used on machines that are busy or have only one core. To write it, run `python -m tools ladder` on
an idle machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numba
import numpy as np
import torch

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.cost.roofline import Roof
from helpers.cost.step import StepSeconds, step_time, work_of
from helpers.drawing.tables import Table
from helpers.model.config import ModelConfig
from helpers.model.fast import FastTransformer, NarrowLinear, quantize_weight, speed_up
from helpers.model.sizes import CONFIGS, narrow_config
from helpers.model.transformer import Transformer
from helpers.timing import count_operators, machine
from helpers.timing.steps import decode_step_task, fastest_ms, fastest_part_ms
from helpers.timing.turns import Task

RECORDED = Path(__file__).parent / "data" / "ladder.json"
TOKENS = 256  # cached tokens before each step
CORES = torch.get_num_threads()  # PyTorch uses one thread per core
AS_IT_IS = "as it is"
WAYS = {  # whether all cores share each matrix, and the bits of a weight
    AS_IT_IS: (False, 32),
    "compiled, its own products": (False, 32),
    "all cores share each matrix": (True, 32),
    "half the bytes": (True, 16),
    "a quarter of the bytes": (True, 8),
}


def launch_overhead() -> float:
    """Return the launch overhead of one operator, in seconds.

    It is the slope of step time against the number of operators, for four models of 1 to 16 layers that are
    so narrow that their steps consist almost entirely of launches.
    """
    steps = [decode_step_task(Transformer(narrow_config(layers)), TOKENS) for layers in (1, 4, 8, 16)]
    return machine.measure_launch_overhead(steps)


def in_products(model: Transformer, step: Task, launch: float, turns: int) -> float:
    """Return the milliseconds that a step spends on its matrix products, without their launch overhead.

    Args:
        model: the model that the step runs.
        step: a decode step.
        launch: launch overhead of one operator, in seconds.
        turns: number of turns to measure; more give a steadier result.
    """
    n_products = sum(isinstance(part, torch.nn.Linear) for part in model.modules())
    return fastest_part_ms(model, {"step": step}, turns)["step"]["matrices"] - 1000 * n_products * launch


def rate_of_loop() -> float:
    """Return how many weights per second our loop multiplies on one core, whose cache holds the matrix."""
    matrix, scale = quantize_weight(np.ones((1024, 1024), np.float32), bits=8)
    loop = NarrowLinear(matrix, scale, np.zeros(1024, np.float32))
    with machine.torch_threads(1):  # restores the number, as Numba's first call also sets PyTorch's
        numba.set_num_threads(1)
        return 1000 * matrix.size / fastest_ms({"loop": partial(loop, torch.ones(1, 1024))}, turns=25)["loop"]


@dataclass(frozen=True)
class Ladder:
    """A model's decode step, unchanged and after each change in WAYS: operators, hardware rates and times.

    Mappings have the keys of WAYS, and methods take one of these keys as `way`.
    """

    size: str  # key of `model.sizes.CONFIGS`
    cores: int  # number of cores that share each matrix, from the second change on
    launch: float  # launch overhead of one operator, in seconds
    rate: float  # weights per second that one core converts to float32 and multiplies
    operators: Mapping[str, int]  # number of operators in a step
    bandwidths: Mapping[str, float]  # bytes per second read by the cores in use
    products: float  # milliseconds that the unchanged step spends in PyTorch's products, without launches
    measured: Mapping[str, float]  # measured milliseconds of a step
    source: str = "measured on this machine"

    def step(self, way: str) -> StepSeconds:
        """Return the terms of a step's lower bound, at the ladder's own rates.

        The arithmetic of attention counts as 0, because its rate is not measured.
        """
        card = Roof(2 * self.products_per_second(way), self.bandwidths[way])  # one product: two operations
        launch = self.operators[way] * self.launch
        config, bits = CONFIGS[self.size], WAYS[way][1]
        step = step_time(config, card, TOKENS, weight_bits=bits, kv_bits=32, launch=launch)
        return replace(step, attention=0.0)

    def products_per_second(self, way: str) -> float:
        """Return how many weights per second the cores in use multiply."""
        return cores_of(way, self.cores) * self.rate

    def megabytes(self, way: str) -> float:
        """Return the megabytes of weights that a step reads."""
        return self.step(way).weights * self.bandwidths[way] / 1e6

    def lower_bound(self, way: str) -> float:
        """Return the lower bound of a step, in milliseconds."""
        return 1000 * self.step(way).total

    def in_turn(self, way: str) -> float:
        """Return how many milliseconds a step would take if its reading and arithmetic did not overlap."""
        step = self.step(way)
        return 1000 * (step.launch + step.kv_cache + step.weights + step.products)

    def spans(self, way: str) -> dict[str, tuple[float, float]]:
        """Return the start and end of each part of a step, in milliseconds; reading and arithmetic overlap.

        The part "rest" is the measured time that no other part explains.
        """
        step = self.step(way)
        launched, rows = 1000 * step.launch, 1000 * (step.launch + step.kv_cache)
        spans = {
            "launches": (0.0, launched),
            "reading": (launched, rows + 1000 * step.weights),
            "arithmetic": (rows, rows + 1000 * step.products),
        }
        known = self.lower_bound(way)
        if way == AS_IT_IS:
            slower = max(0.0, self.products - 1000 * max(step.weights, step.products))
            spans["slow products"] = (known, known + slower)
            known += slower
        return spans | {"rest": (known, max(known, self.measured[way]))}

    def breakdown(self, way: str) -> Table:
        """Return a table of the terms of a step's lower bound: the count, rate and milliseconds of each."""
        step, speed = self.step(way), self.bandwidths[way]
        bandwidth = f"{speed / 1e9:.0f} GB/s"
        weights = f"{step.products * self.products_per_second(way) / 1e6:.1f} M weights"
        rate = f"{self.products_per_second(way) / 1e9:.0f} billion a second"
        terms = {
            "launches": (f"{self.operators[way]}", f"{1e6 * self.launch:.1f} µs each", 1000 * step.launch),
            "rows": (f"{step.kv_cache * speed / 1e6:.1f} MB", bandwidth, 1000 * step.kv_cache),
            "weights": (f"{self.megabytes(way):.1f} MB", bandwidth, 1000 * step.weights),
            "arithmetic": (weights, rate, 1000 * step.products),
            "lower bound": ("", "", self.lower_bound(way)),
        }
        return Table([*map(list, terms.values())], [*terms], ["count", "price", "ms"])

    def bars(self) -> dict[str, tuple[dict[str, tuple[float, float]], float]]:
        """Return the steps for `plots.waterfall`: for each way, its `spans` and its measured milliseconds."""
        return {way: (self.spans(way), ms) for way, ms in self.measured.items()}

    def flaw(self) -> str:
        """Return why these measurements cannot be used, or "" if they can."""
        if self.cores < 2:
            return "Python has only one core"
        for way, ms in self.measured.items():
            if ms < self.lower_bound(way):
                least = f"where the prices measured here say {self.lower_bound(way):.2f} at least"
                return f"a step, {way}, took {ms:.2f} ms, {least}, so one of them was measured too high"
        return ""


def ladder(cores: int = CORES) -> Ladder:
    """Measure a ladder on this machine; if it has one core or `flaw` finds a flaw, return the recorded one.

    Args:
        cores: number of cores that share each matrix where WAYS says so.
    """
    found = climb("16M", cores) if cores > 1 else recorded(cores=1)
    if not (why := found.flaw()):
        return found
    kept = recorded()
    source = f"The numbers are those of {kept.source}. Here they cannot be measured: {why}."
    return replace(kept, source=source)


def recorded(**changes: Any) -> Ladder:
    """Return the ladder of two idle cores that ladder.json stores, with rates rounded to 3 digits.

    Args:
        changes: fields of `Ladder` to replace.
    """
    return replace(Ladder(**json.loads(RECORDED.read_text())), **changes)


def climb(size: str, cores: int) -> Ladder:
    """Time a decode step of a randomly initialized model, unchanged and then after each change in WAYS.

    Each of three rounds measures both the hardware rates and the steps, so that a slow moment affects
    both.

    Args:
        size: key of CONFIGS.
        cores: threads that share each matrix where WAYS says so.
    """
    model = Transformer(CONFIGS[size])
    twins = {bits: speed_up(model, bits=bits, threads=1) for bits in (32, 16, 8)}
    steps = {
        way: _step(model if way == AS_IT_IS else twins[bits], way, cores) for way, (_, bits) in WAYS.items()
    }
    launches, rates, read, timed, products = [], [], [], [], []
    with machine.torch_threads(1):  # the step as it is runs on one core
        for _ in range(3):
            launches.append(launch_overhead())
            rates.append(rate_of_loop())
            read.append({one: _bandwidth(model.config, *one, cores) for one in WAYS.values()})
            timed.append(fastest_ms(steps, turns=5))
            products.append(in_products(model, steps[AS_IT_IS], launches[-1], turns=1))
        operators = {way: count_operators(step) for way, step in steps.items()}
    return Ladder(
        size,
        cores,
        launch=median(launches),  # a slope, so the smallest is not the most accurate
        rate=max(rates),
        operators=operators,
        bandwidths={way: max(one[both] for one in read) for way, both in WAYS.items()},
        products=min(products),
        measured={way: min(one[way] for one in timed) for way in WAYS},
    )


def cores_of(way: str, cores: int) -> int:
    """Return how many of `cores` cores share each matrix in a way of WAYS: all of them, or 1."""
    return cores if WAYS[way][0] else 1


def _step(model: Transformer | FastTransformer, way: str, cores: int) -> Task:
    step = decode_step_task(model, TOKENS)

    def run() -> None:
        if isinstance(model, FastTransformer):
            model.threads = cores_of(way, cores)
        step()

    return run


def _bandwidth(config: ModelConfig, shared: bool, bits: int, cores: int) -> float:
    rows, weights, *_ = work_of(config, [(TOKENS, 1)], users=1, logits=1)
    with machine.torch_threads(cores if shared else 1):
        return machine.measure_bandwidth(int(4 * rows + bits / 8 * weights))


def milliseconds(guess: Any, lower_bound: float, measured: float) -> Guess:
    """Compare a guess of a step's milliseconds with the range from its lower bound to its measured time.

    A guess is right up to 10% outside this range.
    """
    near = isinstance(guess, int | float) and lower_bound / 1.1 <= guess <= 1.1 * measured
    why = f"The lower bound is {lower_bound:.2f} ms, the clock says {measured:.2f}."
    why += " Right is all between, and a tenth more."
    return Guess(
        guess, guess if near else f"{lower_bound:.2f} to {measured:.2f}", why, example_answer=measured
    )


def hidden(reading: float, multiplying: float, together: float) -> float:
    """Return the share of the shorter of two parts that overlaps the longer: 1 if all of it, 0 if none.

    Args:
        reading, multiplying: time of each part alone.
        together: time of both parts together, in the same unit.
    """
    return (reading + multiplying - together) / min(reading, multiplying)


hidden_share = Exercise(
    name="hidden_share",
    todo="let hidden_share return a number: 1 where the shorter part is hidden, 0 where nothing is.",
    cases=[
        Case(args, "hidden_share({}, {}, {})".format(*args))
        for args in [(4, 2, 4), (4, 2, 6), (4, 2, 5), (1, 4, 4.25), (3, 3, 4.5)]
    ],
    right_answer=hidden,
    wrong_answers=[
        "that is the share that was not hidden.",
        lambda *ms: 1 - hidden(*ms),
        "these are milliseconds; divide by the shorter part, which is all that can be hidden.",
        lambda reading, multiplying, together: reading + multiplying - together,
        "only the shorter part can be hidden, so divide by that one.",
        lambda reading, multiplying, together: (reading + multiplying - together) / max(reading, multiplying),
        lambda reading, multiplying, together: (reading + multiplying - together) / multiplying,
    ],
    success="4 and 2 ms hide all of the 2 in 4 ms together, half of it in 5, nothing in 6.",
)
