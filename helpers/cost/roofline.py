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


Hardware = Roofline | Card  # a machine's roofline, measured or from a data sheet


def ridge_point(machine: Hardware) -> float:
    """Return the arithmetic intensity above which compute, not bandwidth, limits a machine's speed.

    It is in operations per byte.
    """
    return machine.flops_per_second / machine.bytes_per_second
