"""The interactive views.

`Live` runs the shipped model in the page. `Stepper` shows the passes of a recorded run, and `Race` compares
two runs, with and without the cache. `WhatIf` shows what a changed prompt does to the cache. `Pool` shows the
page pool of an engine, and `StepTime` the time of one step on a card.
"""

from helpers.stepper.live import Live
from helpers.stepper.pool import Pool
from helpers.stepper.race import Race
from helpers.stepper.step_time import StepTime
from helpers.stepper.stepper import Stepper
from helpers.stepper.what_if import WhatIf

__all__ = ["Live", "Pool", "Race", "StepTime", "Stepper", "WhatIf"]
