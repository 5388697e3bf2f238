"""Formulas for the cost of a reply: tokens processed, memory for weights and KV cache, and time per step."""

from helpers.cost.config import model_of
from helpers.cost.layers import users_that_fit
from helpers.cost.step import StepSeconds, active_parameters, step_time

__all__ = ["StepSeconds", "active_parameters", "model_of", "step_time", "users_that_fit"]
