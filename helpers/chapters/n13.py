"""The measurements, the exercise and the prediction of notebook 13: the time of a decode step.

The step is timed unchanged and then after each of five changes. Every time is compared with its lower bound.
All times in milliseconds are those of the fastest of many calls.

ladder.json stores the times that a machine with two idle cores needs. They are the numbers of the notebook's
text. To write the file, run `python -m tools ladder` on an idle machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.cost.roofline import Roofline
from helpers.cost.step import StepSeconds, step_time, step_work
from helpers.drawing.tables import Table
from helpers.model.config import ModelConfig
from helpers.model.fast import FastTransformer, quantize_weight, speed_up
from helpers.model.kernels import SERIAL, Array, linear_loop
from helpers.model.sizes import CONFIGS, narrow_config
from helpers.model.transformer import Transformer
from helpers.timing import count_operators, machine
from helpers.timing.steps import decode_step_task, fastest_ms
from helpers.timing.turns import Task

RECORDED_LADDER_FILE = Path(__file__).parent / "data" / "ladder.json"
N_CACHED_TOKENS = 256  # number of cached tokens before each step
CORES = torch.get_num_threads()  # PyTorch uses one thread per core
UNCHANGED = "as it is"
OWN_PRODUCTS = "our own products"


class StepVariant(NamedTuple):
    """A way to run the decode step: with one core or all cores per matrix, and the bits per weight."""

    cores_share: bool  # whether all cores share each matrix
    weight_bits: int


STEP_VARIANTS = {  # unchanged, and after each of five changes
    UNCHANGED: StepVariant(False, 32),
    OWN_PRODUCTS: StepVariant(False, 32),
    "one call for all layers": StepVariant(False, 32),
    "all cores share each matrix": StepVariant(True, 32),
    "half the bytes": StepVariant(True, 16),
    "a quarter of the bytes": StepVariant(True, 8),
}


def measure_launch_overhead_seconds() -> float:
    """Return the launch overhead of one operator, in seconds.

    The overhead is the slope of the step time over the number of operators. It is measured on four models of
    1 to 16 layers. They are so narrow that almost all of the step time is launch overhead.
    """
    steps = [
        decode_step_task(Transformer(narrow_config(layers)), N_CACHED_TOKENS) for layers in (1, 4, 8, 16)
    ]
    return machine.measure_launch_overhead(steps)


class OwnLinear(nn.Module):
    """A linear layer for a batch of one that uses the compiled loop instead of PyTorch's operator."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.matrix, self.scale = quantize_weight(linear.weight.detach().numpy(), bits=32)
        self.bias = np.zeros_like(self.scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(*x.shape[:-1], len(self.matrix))
        linear_loop(x.numpy()[0], self.matrix, self.scale, self.bias, out.numpy()[0])
        return out


def with_own_products(model: Transformer) -> Transformer:
    """Return a copy of a model in which each linear layer is an `OwnLinear`."""
    own = deepcopy(model)
    for part in [*own.modules()]:
        for name, child in part.named_children():
            if isinstance(child, nn.Linear):
                setattr(part, name, OwnLinear(child))
    return own


def torch_products_task(model: Transformer) -> Task:
    """Return a task that runs all matrix products of a decode step, as PyTorch computes them."""
    weights = [part.weight.detach() for part in model.modules() if isinstance(part, nn.Linear)]
    x = {columns: torch.ones(1, 1, columns) for columns in {weight.shape[1] for weight in weights}}
    return lambda: [F.linear(x[weight.shape[1]], weight) for weight in weights]


def compiled_products_task(twin: FastTransformer) -> Task:
    """Return a task that runs all matrix products of a decode step, as the compiled loop computes them."""
    lm_head = [part[None] for part in (twin.lm_head.matrix, twin.lm_head.scale, twin.lm_head.bias)]
    jobs = [
        (np.ones((1, stacked[0].shape[2]), np.float32), *stacked, np.empty((1, stacked[0].shape[1]), "f4"))
        for stacked in (twin.qkv, twin.o, twin.gate_up, twin.down, lm_head)
    ]
    return lambda: [stacked_linear_loop(*job) for job in jobs]


@numba.njit(**{**SERIAL, "cache": False})
def stacked_linear_loop(
    x: Array, matrices: Array, scales: Array, biases: Array, out: Array, repeats: int = 1
) -> None:
    """Multiply x by each of the matrices, (L, F, C), `repeats` times; `out` keeps the last product."""
    for _ in range(repeats):
        for layer in range(len(matrices)):
            linear_loop(x, matrices[layer], scales[layer], biases[layer], out)


def measure_loop_weights_per_second(model: Transformer) -> float:
    """Return how many weights per second the compiled loop multiplies on one core.

    It multiplies matrices of as many columns as the model's, because each row costs a little time of its own.
    Each matrix has 2**19 weights of 1 byte, so that the core's cache holds it, and the result does not depend
    on the bandwidth.
    """
    weights: dict[int, int] = {}  # of the model, by the columns of their matrices
    for part in model.modules():
        if isinstance(part, nn.Linear):
            weights[part.in_features] = weights.get(part.in_features, 0) + part.weight.numel()
    tasks = {}
    for columns in weights:
        matrix, scale = quantize_weight(np.ones((2**19 // columns, columns), np.float32), bits=8)
        bias, out = np.zeros_like(scale), np.empty((1, len(scale)), np.float32)
        x = np.ones((1, columns), np.float32)
        tasks[columns] = partial(stacked_linear_loop, x, matrix[None], scale[None], bias[None], out, 20)
    with machine.torch_threads(1):  # restores PyTorch's threads, which Numba's first call sets
        numba.set_num_threads(1)
        ms = fastest_ms(tasks, turns=9)
    total = sum(n * ms[columns] / (20 * (2**19 // columns) * columns) for columns, n in weights.items())
    return 1000 * sum(weights.values()) / total


@dataclass(frozen=True)
class StepTimeLadder:
    """A ladder: the measurements of a model's decode step in each of the STEP_VARIANTS.

    It contains the number of operators in a step, the hardware rates and the times. The fields that are
    mappings have the keys of STEP_VARIANTS. The argument `variant` of the methods is one of these keys.
    """

    model_size: str  # key of `model.sizes.CONFIGS`
    cores: int  # number of cores that share each matrix in variants with `cores_share`
    launch_seconds: float  # launch overhead of one operator, in seconds
    weights_per_second_per_core: float  # weights per second that one core converts to float32 and multiplies
    n_operators: Mapping[str, int]  # number of operators in a step
    bandwidths: Mapping[str, float]  # bytes per second read by the cores in use
    products_ms: Mapping[str, float]  # milliseconds of the products alone, without launches
    measured_ms: Mapping[str, float]  # milliseconds of a step
    product_speeds: Mapping[str, list[float]] = field(
        default_factory=dict
    )  # GB/s, by routine; see the notebook
    source: str = "measured on this machine"

    def lower_bound_terms(self, variant: str) -> StepSeconds:
        """Return the terms of a step's lower bound, computed with the measured hardware rates.

        The time for the arithmetic of attention is set to 0, because its rate is not measured.
        """
        card = Roofline(
            2 * self.weights_per_second(variant), self.bandwidths[variant]
        )  # one product: two operations
        launch = self.n_operators[variant] * self.launch_seconds
        config, bits = CONFIGS[self.model_size], STEP_VARIANTS[variant].weight_bits
        step = step_time(config, card, N_CACHED_TOKENS, weight_bits=bits, kv_bits=32, launch=launch)
        return replace(step, attention=0.0)

    def weights_per_second(self, variant: str) -> float:
        """Return how many weights per second a variant multiplies on all cores that it uses."""
        return cores_in_use(variant, self.cores) * self.weights_per_second_per_core

    def weight_megabytes(self, variant: str) -> float:
        """Return how many megabytes of weights a step reads."""
        return self.lower_bound_terms(variant).weights * self.bandwidths[variant] / 1e6

    def lower_bound_ms(self, variant: str) -> float:
        """Return the lower bound of a step, in milliseconds."""
        return 1000 * self.lower_bound_terms(variant).total

    def hidden_share(self, variant: str) -> float:
        """Return the share of the shorter of reading and arithmetic that the products alone hide."""
        step = self.lower_bound_terms(variant)
        return overlap_share(1000 * step.weights, 1000 * step.products, self.products_ms[variant])

    def part_spans_ms(self, variant: str) -> dict[str, tuple[float, float]]:
        """Return the start and end of each part of a step, in milliseconds.

        The parts "reading" and "arithmetic" overlap. "slow products" is what the products, alone, take longer
        than their part of the lower bound. "rest" is the measured time after the end of all other parts.
        """
        step = self.lower_bound_terms(variant)
        launched, entries = 1000 * step.launch, 1000 * (step.launch + step.kv_cache)
        spans = {
            "launches": (0.0, launched),
            "reading": (launched, entries + 1000 * step.weights),
            "arithmetic": (entries, entries + 1000 * step.products),
        }
        known = self.lower_bound_ms(variant)
        slower = max(0.0, self.products_ms[variant] - 1000 * max(step.weights, step.products))
        spans["slow products"] = (known, known + slower)
        known += slower
        return spans | {"rest": (known, max(known, self.measured_ms[variant]))}

    def lower_bound_table(self, variant: str) -> Table:
        """Return a table of the terms of a step's lower bound.

        The columns are the amount (launches, bytes or weights), the time per launch or the rate, and the
        milliseconds.
        """
        step, speed = self.lower_bound_terms(variant), self.bandwidths[variant]
        bandwidth = f"{speed / 1e9:.0f} GB/s"
        weights = f"{step.products * self.weights_per_second(variant) / 1e6:.1f} M weights"
        rate = f"{self.weights_per_second(variant) / 1e9:.0f} billion a second"
        terms = {
            "launches": (
                f"{self.n_operators[variant]}",
                f"{1e6 * self.launch_seconds:.1f} µs each",
                1000 * step.launch,
            ),
            "KV entries": (f"{step.kv_cache * speed / 1e6:.1f} MB", bandwidth, 1000 * step.kv_cache),
            "weights": (f"{self.weight_megabytes(variant):.1f} MB", bandwidth, 1000 * step.weights),
            "arithmetic": (weights, rate, 1000 * step.products),
            "lower bound": ("", "", self.lower_bound_ms(variant)),
        }
        return Table([*map(list, terms.values())], [*terms], ["count", "price", "ms"])

    def waterfall_bars(self) -> dict[str, tuple[dict[str, tuple[float, float]], float]]:
        """Return, for `plots.waterfall`, the `part_spans_ms` and the measured time of each variant."""
        return {way: (self.part_spans_ms(way), ms) for way, ms in self.measured_ms.items()}

    def why_unusable(self) -> str:
        """Return why these measurements cannot be used, or "" if they can be used."""
        if self.cores < 2:
            return "Python has only one core here, and the ladder needs two."
        if any(ms < self.lower_bound_ms(way) for way, ms in self.measured_ms.items()):
            return (
                "The machine was busy: a step came out faster than its bound. "
                "Close other programs and run again."
            )
        return ""


def measure_ladder_here(cores: int = CORES) -> StepTimeLadder:
    """Measure a ladder on this machine, or, if there is only one core, return one that is unusable.

    Args:
        cores: number of cores that share each matrix in variants with `cores_share`.
    """
    return measure_ladder("16M", cores) if cores > 1 else load_recorded_ladder(cores=cores)


def load_recorded_ladder(**replaced_fields: Any) -> StepTimeLadder:
    """Return the ladder in ladder.json, measured on two idle cores. Its rates are rounded to 3 digits.

    Args:
        replaced_fields: fields of `StepTimeLadder` to replace, with their new values.
    """
    return replace(StepTimeLadder(**json.loads(RECORDED_LADDER_FILE.read_text())), **replaced_fields)


def measure_ladder(model_size: str, cores: int) -> StepTimeLadder:
    """Time the decode step of a randomly initialized model in each of the STEP_VARIANTS.

    The hardware rates and the steps are measured together in each of three rounds, so that a slow moment of
    the machine affects the rates as much as the steps.

    Args:
        model_size: key of the model in CONFIGS.
        cores: number of cores that share each matrix in variants with `cores_share`.
    """
    model = Transformer(CONFIGS[model_size])
    twins = {bits: speed_up(model, bits=bits, threads=1) for bits in (32, 16, 8)}
    own = {UNCHANGED: model, OWN_PRODUCTS: with_own_products(model)}
    steps, products = {}, {}
    for way, (_, bits) in STEP_VARIANTS.items():
        one = own.get(way, twins[bits])
        steps[way] = _with_cores(way, cores, one, decode_step_task(one, N_CACHED_TOKENS))
        products[way] = _with_cores(way, cores, twins[bits], compiled_products_task(twins[bits]))
    products[UNCHANGED] = torch_products_task(model)
    launches, rates, read, timed, alone = [], [], [], [], []
    with machine.torch_threads(1):  # the unchanged step runs on one core
        for _ in range(3):
            launches.append(measure_launch_overhead_seconds())
            rates.append(measure_loop_weights_per_second(model))
            read.append({one: _bandwidth(model.config, *one, cores) for one in {*STEP_VARIANTS.values()}})
            timed.append(fastest_ms(steps, turns=5))
            alone.append(fastest_ms(products, turns=5))
        operators = {way: count_operators(step) for way, step in steps.items()}
        operators[OWN_PRODUCTS] = operators[UNCHANGED]  # an `OwnLinear` for each; x.numpy() is no launch
        launched = 1000 * median(launches) * count_operators(products[UNCHANGED])
    products_ms = {way: min(one[way] for one in alone) for way in STEP_VARIANTS}
    return StepTimeLadder(
        model_size,
        cores,
        launch_seconds=median(launches),  # slopes, the smallest of which is not the most accurate
        weights_per_second_per_core=max(rates),
        n_operators=operators,
        bandwidths={way: max(one[both] for one in read) for way, both in STEP_VARIANTS.items()},
        products_ms=products_ms | {UNCHANGED: products_ms[UNCHANGED] - launched},
        measured_ms={way: min(one[way] for one in timed) for way in STEP_VARIANTS},
    )


def cores_in_use(variant: str, n_cores: int) -> int:
    """Return how many cores a variant in STEP_VARIANTS uses for each matrix, which is `n_cores` or 1."""
    return n_cores if STEP_VARIANTS[variant].cores_share else 1


def _with_cores(way: str, cores: int, model: Transformer, task: Task) -> Task:
    def run() -> None:
        numba.set_num_threads(cores_in_use(way, cores))
        if isinstance(model, FastTransformer):
            model.threads = cores_in_use(way, cores)
        task()

    return run


def _bandwidth(config: ModelConfig, shared: bool, bits: int, cores: int) -> float:
    rows, weights, *_ = step_work(config, [(N_CACHED_TOKENS, 1)], users=1, logits=1)
    with machine.torch_threads(cores if shared else 1):
        return machine.measure_bandwidth(int(4 * rows + bits / 8 * weights))


def check_step_ms_guess(guess: Any, lower_bound_ms: float, measured_ms: float) -> Guess:
    """Compare a guess of a step's time with the range from its lower bound to its measured time.

    A guess counts as right if it is inside this range or at most 10% outside it.
    """
    near = isinstance(guess, int | float) and lower_bound_ms / 1.1 <= guess <= 1.1 * measured_ms
    why = f"The lower bound is {lower_bound_ms:.2f} ms, the clock says {measured_ms:.2f}."
    why += " Right is all between, and a tenth more."
    return Guess(
        guess,
        guess if near else f"{lower_bound_ms:.2f} to {measured_ms:.2f}",
        why,
        example_answer=measured_ms,
    )


def overlap_share(reading: float, multiplying: float, together: float) -> float:
    """Return how much of the shorter of two tasks overlaps the longer, from 0 (none of it) to 1 (all of it).

    Args:
        reading: time of the first task if it runs alone.
        multiplying: time of the second task if it runs alone.
        together: time until both tasks are finished if they overlap, in the same unit.
    """
    return (reading + multiplying - together) / min(reading, multiplying)


hidden_share = Exercise(
    name="hidden_share",
    todo="let hidden_share return a number: 1 where the shorter part is hidden, 0 where nothing is.",
    cases=[
        Case(args, "hidden_share({}, {}, {})".format(*args))
        for args in [(4, 2, 4), (4, 2, 6), (4, 2, 5), (1, 4, 4.25), (3, 3, 4.5)]
    ],
    right_answer=overlap_share,
    wrong_answers=[
        "that is the share that was not hidden.",
        lambda *ms: 1 - overlap_share(*ms),
        "these are milliseconds; divide by the shorter part, which is all that can be hidden.",
        lambda reading, multiplying, together: reading + multiplying - together,
        "only the shorter part can be hidden, so divide by that one.",
        lambda reading, multiplying, together: (reading + multiplying - together) / max(reading, multiplying),
        lambda reading, multiplying, together: (reading + multiplying - together) / multiplying,
    ],
    success="4 and 2 ms hide all of the 2 in 4 ms together, half of it in 5, nothing in 6.",
)
