"""The stepper: training reference, prefill and decode of a recorded run, one pass at a time."""

from helpers.stepper.race import Race
from helpers.stepper.stepper import LEVELS, Stepper

__all__ = ["LEVELS", "Race", "Stepper"]
