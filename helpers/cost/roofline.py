"""How long work takes at the least: operations against the peak, bytes against the bandwidth, and the start.

Source: the roofline, Williams et al. 2009.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from helpers.arguments import is_number
from helpers.cost.models import Card


@dataclass(frozen=True)
class Roof:
    """What a machine can do at best: operations and bytes a second; ValueError unless both are over 0."""

    flops_per_second: float
    bytes_per_second: float

    def __post_init__(self) -> None:
        check_over(0, **vars(self))


Limits = Roof | Card  # of a machine, measured or published


@dataclass(frozen=True)
class Work:
    """Operations (an addition or a multiplication is one) and bytes moved."""

    operations: float
    nbytes: float

    def __post_init__(self) -> None:
        check_least(0, operations=self.operations)
        check_over(0, nbytes=self.nbytes)

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.operations / self.nbytes


def product(T: float, C: float, F: float, element_bytes: float) -> Work:
    """Return the work of T tokens times a matrix, (T, C) · (C, F), each number read or written once.

    Args:
        T: tokens at once, of all users together.
        C, F: the matrix.
        element_bytes: size of a number: 4, 2, 1, or 0.5.

    Raises:
        ValueError: a size is not over 0.
    """
    check_over(0, T=T, C=C, F=F, element_bytes=element_bytes)
    return Work(2 * T * C * F, element_bytes * (C * F + T * C + T * F))


def attention(T: int, S: int, n_heads: int, n_kv_heads: int, head_dim: int, row_bytes: float) -> Work:
    """Return the work of attention in one layer: T queries, the newest of S tokens, over the rows of S.

    Each pair of a query and a key takes 2 D operations for its score and 2 D for its share of the context;
    queries and contexts are T rows of H · D numbers, keys and values S rows of Hkv · D each.

    Raises:
        ValueError: a size is not over 0, or T is over S.
    """
    check_over(0, T=T, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, row_bytes=row_bytes)
    check_least(T, S=S)
    pairs = T * S - T * (T - 1) // 2
    numbers = 2 * S * n_kv_heads * head_dim + 2 * T * n_heads * head_dim
    return Work(4 * pairs * n_heads * head_dim, row_bytes * numbers)


def ridge(machine: Limits) -> float:
    """Return the intensity from which on the arithmetic is the limit, operations a byte."""
    return machine.flops_per_second / machine.bytes_per_second


def bound_by(work: Work, machine: Limits) -> str:
    """Say which takes longer: "memory", to move the bytes, or "arithmetic", to do the operations."""
    return "memory" if work.intensity < ridge(machine) else "arithmetic"


def seconds_at_least(work: Work, machine: Limits) -> float:
    """Return the longer of the two times: the machine can do both at once, and neither faster."""
    return max(work.nbytes / machine.bytes_per_second, work.operations / machine.flops_per_second)


def share_of_arithmetic(work: Work, machine: Limits) -> float:
    """Return the share of its peak that the machine can use for this work, 0 to 1."""
    return min(1.0, work.intensity / ridge(machine))


def predict_step(operators: int, start: float, nbytes: float, bandwidth: float) -> float:
    """Return the seconds of a decode step: starting its operators, and moving its bytes.

    Args:
        operators: how many it starts.
        start: seconds to start one.
        nbytes: bytes that it reads.
        bandwidth: bytes a second.

    Raises:
        ValueError: a number is no number or negative, or the bandwidth is 0.
    """
    check_least(0, operators=operators, start=start, nbytes=nbytes)
    check_over(0, bandwidth=bandwidth)
    return operators * start + nbytes / bandwidth


def batch_at_ridge(machine: Limits, element_bytes: float) -> int:
    """Return how many tokens at once it takes until reading a matrix takes no longer than computing with it.

    The tokens' own numbers are left out, as in 2 T / bytes, the intensity while T is small beside the
    matrix: so this is the least, and a real matrix takes some more.
    """
    check_over(0, element_bytes=element_bytes)
    return math.ceil(ridge(machine) * element_bytes / 2)


def check_over(bound: float, **numbers: float) -> None:
    """Raise ValueError unless each is a finite number over the bound."""
    for name, value in numbers.items():
        if not is_number(value) or value <= bound:
            raise ValueError(f"{name} is {value!r}; expected a finite number over {bound:g}")


def check_least(bound: float, **numbers: float) -> None:
    """Raise ValueError unless each is a finite number, the bound or more."""
    for name, value in numbers.items():
        if not is_number(value) or value < bound:
            raise ValueError(f"{name} is {value!r}; expected a finite number, {bound:g} or more")
