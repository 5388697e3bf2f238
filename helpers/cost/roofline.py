"""What a machine can do at best: operations a second against bytes a second.

Source: the roofline, Williams et al. 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.arguments import is_number
from helpers.cost.models import Card


@dataclass(frozen=True)
class Roof:
    """What a machine can do at best: operations and bytes a second."""

    flops_per_second: float
    bytes_per_second: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not is_number(value) or value <= 0:
                raise ValueError(f"{name} is {value!r}; expected a finite number over 0")


Limits = Roof | Card  # of a machine, measured or published


def ridge(machine: Limits) -> float:
    """Return the intensity from which on the arithmetic is the limit, operations a byte."""
    return machine.flops_per_second / machine.bytes_per_second
