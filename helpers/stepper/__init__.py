"""The stepper: training reference, prefill and decode of a recorded run, one pass at a time."""

from helpers.stepper.stepper import LEVELS, Stepper
from helpers.stepper.what_if import WhatIf

__all__ = ["LEVELS", "Stepper", "WhatIf"]
