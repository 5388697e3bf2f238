"""Figures of traces and models, each with a text alternative: `Picture.alt`."""

from helpers.plots.attention import four_grids, row_strips
from helpers.plots.cached import cache_bytes, copied_rows
from helpers.plots.canvas import Picture
from helpers.plots.margins import margins
from helpers.plots.measured import loss_curve, time_per_token
from helpers.plots.model import mask_pair, residual_stream, who_moves
from helpers.plots.passes import pause_and_drip, triangle, work_by_pass

__all__ = [
    "Picture",
    "cache_bytes",
    "copied_rows",
    "four_grids",
    "loss_curve",
    "margins",
    "mask_pair",
    "pause_and_drip",
    "residual_stream",
    "row_strips",
    "time_per_token",
    "triangle",
    "who_moves",
    "work_by_pass",
]
