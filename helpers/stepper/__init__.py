"""What runs in the page: the stepper, the race with and without the cache, and what-if on the toy."""

from helpers.stepper.race import Race
from helpers.stepper.stepper import LEVELS, Stepper
from helpers.stepper.what_if import WhatIf

__all__ = ["LEVELS", "Race", "Stepper", "WhatIf"]
