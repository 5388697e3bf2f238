"""How long tasks take: timing in `turns`, counted `operators`, and what the `machine` can do."""

from helpers.timing.operators import count_operators
from helpers.timing.turns import Timing, calls_per_turn, in_turns, seconds_per_call
