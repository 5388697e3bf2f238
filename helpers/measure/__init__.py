"""What a task takes: `timing`, `record` of operators and bytes, and what the `machine` can do."""

from helpers.measure.record import Record, record_of
from helpers.measure.timing import Timing, calls_for, in_turns, seconds_of
