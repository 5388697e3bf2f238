"""The interactive views: `Live`, `Stepper`, `Race`, `WhatIf`, `Pool` and `StepTime`.

They show the live model; the passes of a run; a race with and without the cache; a changed prompt; the page
pool of an engine; and the time of a step.
"""

from helpers.stepper.live import Live
from helpers.stepper.pool import Pool
from helpers.stepper.race import Race
from helpers.stepper.step_time import StepTime
from helpers.stepper.stepper import Stepper
from helpers.stepper.what_if import WhatIf

__all__ = ["Live", "Pool", "Race", "StepTime", "Stepper", "WhatIf"]
