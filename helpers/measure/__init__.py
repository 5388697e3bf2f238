"""What a task takes: `timing`, `record` of operators, and what the `machine` can do."""

from helpers.measure.record import count_operators
from helpers.measure.timing import Timing, calls_for, in_turns, seconds_of
