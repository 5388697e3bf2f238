"""The interactive views: the live model, the stepper, the race with and without the cache, what-if,
the pool of an engine, and the time of a step."""

from helpers.stepper.live import Live
from helpers.stepper.pool import Pool
from helpers.stepper.race import Race
from helpers.stepper.step_time import StepTime
from helpers.stepper.stepper import Stepper
from helpers.stepper.what_if import WhatIf

__all__ = ["Live", "Pool", "Race", "StepTime", "Stepper", "WhatIf"]
