"""What a task takes: `timing`, `record` of operators, and what the `machine` can do."""

from helpers.timing.operators import count_operators
from helpers.timing.turns import Timing, calls_for, in_turns, seconds_of
