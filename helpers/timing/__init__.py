"""How long tasks take: timing in turns, the operators that a task launches, and what a machine can do."""

from helpers.timing.operators import count_operators
from helpers.timing.turns import Timing, calls_per_turn, in_turns, seconds_per_call
