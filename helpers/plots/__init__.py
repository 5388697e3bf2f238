"""Figures of traces, each with a text alternative: `Picture.alt`."""

from helpers.plots.attention import four_grids, row_strips
from helpers.plots.canvas import Picture
from helpers.plots.passes import pause_and_drip, triangle, work_by_pass

__all__ = ["Picture", "four_grids", "pause_and_drip", "row_strips", "triangle", "work_by_pass"]
