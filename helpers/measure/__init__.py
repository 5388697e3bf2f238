"""What a task takes: `timing`, `record` of operators and bytes, the `machine`; and the `order` of sums."""

from helpers.measure.record import Record, record_of
from helpers.measure.timing import Timing, calls_for, in_turns, in_words, seconds_of
