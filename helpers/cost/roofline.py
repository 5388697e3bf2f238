"""What a machine can do at best: operations a second against bytes a second.

Source: the roofline, Williams et al. 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.cost.models import Card


@dataclass(frozen=True)
class Roof:
    """What a machine can do at best: operations and bytes a second."""

    flops_per_second: float
    bytes_per_second: float


Limits = Roof | Card  # of a machine, measured or published


def ridge(machine: Limits) -> float:
    """Return the intensity from which on the arithmetic is the limit, operations a byte."""
    return machine.flops_per_second / machine.bytes_per_second
