"""What a task takes: `timing` in turns, `record` of operators and bytes, and the `machine` it runs on."""

from helpers.measure.record import Record, record_of
from helpers.measure.timing import Timing, calls_for, in_turns, in_words, seconds_of
