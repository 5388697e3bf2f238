"""How long work takes at the least: operations against the peak, bytes against the bandwidth, and the start.

Source: the roofline, Williams et al. 2009.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.arguments import is_number
from helpers.cost.bytes import read_by_step
from helpers.cost.models import Card, PublishedModel

if TYPE_CHECKING:
    from helpers.model.config import ModelConfig


def check_over_0(numbers: Any) -> None:
    """Raise ValueError unless each field of a dataclass is a finite number over 0."""
    for name, value in vars(numbers).items():
        if not is_number(value) or value <= 0:
            raise ValueError(f"{name} is {value!r}; expected a finite number over 0")


@dataclass(frozen=True)
class Roof:
    """What a machine can do at best: operations and bytes a second."""

    flops_per_second: float
    bytes_per_second: float

    def __post_init__(self) -> None:
        check_over_0(self)


Limits = Roof | Card  # of a machine, measured or published


@dataclass(frozen=True)
class Work:
    """Operations (an addition or a multiplication is one) and bytes moved."""

    operations: float
    nbytes: float

    def __post_init__(self) -> None:
        check_over_0(self)

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.operations / self.nbytes


def ridge(machine: Limits) -> float:
    """Return the intensity from which on the arithmetic is the limit, operations a byte."""
    return machine.flops_per_second / machine.bytes_per_second


def bound_by(work: Work, machine: Limits) -> str:
    """Say which takes longer: "memory", to move the bytes, or "arithmetic", to do the operations."""
    return "memory" if work.intensity < ridge(machine) else "arithmetic"


def seconds_at_least(work: Work, machine: Limits) -> float:
    """Return the longer of the two times: the machine can do both at once, and neither faster."""
    return max(work.nbytes / machine.bytes_per_second, work.operations / machine.flops_per_second)


@dataclass(frozen=True)
class Step:
    """What a decode step of all its users together asks of a machine, or a pass over a prompt.

    Attributes:
        rows, weights: bytes that it reads.
        operations: those with the weights; attention's are few for the rows that it reads.
    """

    rows: float
    weights: float
    operations: float


def decode_step_of(
    model: ModelConfig | PublishedModel,
    tokens: int,
    users: int = 1,
    weight_bytes: float = 2,
    row_bytes: float = 2,
) -> Step:
    """Return the decode step of a dense model behind so many tokens; arguments as in `read_by_step`."""
    read = read_by_step(model, tokens, users=users, weight_bytes=weight_bytes, row_bytes=row_bytes)
    rows = read.pop("rows") + read.pop("new rows")
    weights = sum(read.values())
    numbers = (weights - read["embedding"]) / weight_bytes
    return Step(rows, weights, 2 * users * numbers)


def prefill_of(
    model: ModelConfig | PublishedModel, tokens: int, weight_bytes: float = 2, row_bytes: float = 2
) -> Step:
    """Return the pass of a dense model over a prompt: only its last token meets the readout's matrix.

    The operations are those with the weights; attention's grow with the square of the tokens, and count most
    in a long prompt.
    """
    read = read_by_step(model, tokens, weight_bytes=weight_bytes, row_bytes=row_bytes)
    weights = sum(n for part, n in read.items() if part not in ("rows", "new rows"))
    layers = weights - read["embedding"] - read["readout"]
    return Step(read["rows"], weights, 2 * (tokens * layers + read["readout"]) / weight_bytes)


def least_time(step: Step, machine: Limits, starting: float) -> dict[str, float]:
    """Return the seconds that a step takes at the least, by term.

    Args:
        starting: seconds to start all its operators.
    """
    return {
        "rows": step.rows / machine.bytes_per_second,
        "weights or arithmetic": max(
            step.weights / machine.bytes_per_second, step.operations / machine.flops_per_second
        ),
        "starts": starting,
    }


def batch_at_ridge(machine: Limits, element_bytes: float) -> int:
    """Return how many tokens at once it takes until reading a matrix takes no longer than computing with it.

    The tokens' own numbers are left out, as in 2 T / bytes, the intensity while T is small beside the
    matrix: so this is the least, and a real matrix takes some more.
    """
    return math.ceil(ridge(machine) * element_bytes / 2)
