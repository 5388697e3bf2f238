"""Measure the duration of tasks, count the operators that they launch, and measure a machine's speed."""

from helpers.timing.operators import count_operators
from helpers.timing.turns import Timing, calls_per_turn, seconds_per_call, time_in_turns
