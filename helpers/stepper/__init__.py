"""What runs in the page: the live model, the stepper, the race with and without the cache, what-if,
and the pool of an engine."""

from helpers.stepper.live import Live
from helpers.stepper.pool import Pool
from helpers.stepper.race import Race
from helpers.stepper.stepper import LEVELS, Stepper
from helpers.stepper.what_if import WhatIf

__all__ = ["LEVELS", "Live", "Pool", "Race", "Stepper", "WhatIf"]
