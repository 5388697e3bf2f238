"""Figures of traces and models, each with a text alternative: `Picture.alt`."""

from helpers.plots.attention import four_grids, name_weights, row_strips
from helpers.plots.cached import cache_bytes, copied_rows
from helpers.plots.canvas import Drawn, Picture
from helpers.plots.drafts import speed_by_acceptance
from helpers.plots.limit import roofline, staircase, time_by_tokens, waterfall
from helpers.plots.machines import two_ranks
from helpers.plots.measured import growth, loss_curve, margins, time_per_token
from helpers.plots.memory import rows_by_tokens
from helpers.plots.model import clock_hands, mask_pair, who_moves
from helpers.plots.passes import pause_and_drip, triangle
from helpers.plots.serving import slots, stall
from helpers.plots.smaller import variants
