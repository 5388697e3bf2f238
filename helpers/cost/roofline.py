"""The roofline model of a machine: its peak compute and its memory bandwidth.

Source: Williams et al. 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.cost.models import Card


@dataclass(frozen=True)
class Roofline:
    """The peak compute (operations per second) and the memory bandwidth (bytes per second) of a machine."""

    flops_per_second: float
    bytes_per_second: float


Hardware = Roofline | Card  # of a machine, measured or published


def ridge_point(machine: Hardware) -> float:
    """Return the arithmetic intensity, in operations per byte, above which compute limits the speed."""
    return machine.flops_per_second / machine.bytes_per_second
