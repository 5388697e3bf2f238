"""Timing: how long tasks take, how many operators they launch, and how fast a machine is."""

from helpers.timing.operators import count_operators
from helpers.timing.turns import Timing, calls_per_turn, seconds_per_call, time_in_turns
