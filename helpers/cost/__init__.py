"""What a reply costs, in closed form: `counts` of passes, published `models`, and the time of a step."""

from helpers.cost.config import model_of
from helpers.cost.layers import users_that_fit
from helpers.cost.step import StepSeconds, numbers_used, step_time

__all__ = ["StepSeconds", "model_of", "numbers_used", "step_time", "users_that_fit"]
