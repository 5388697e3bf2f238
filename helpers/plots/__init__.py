"""Figures of traces and models, each with a text alternative: `Picture.alt`."""

from helpers.drawing.canvas import Picture
from helpers.plots.attention import name_weights
from helpers.plots.batches import bars, batches
from helpers.plots.contributions import contributions
from helpers.plots.fingerprints import fingerprints
from helpers.plots.limit import waterfall
from helpers.plots.pages import pages
from helpers.plots.passes import triangle
from helpers.plots.probabilities import words_not_said
from helpers.plots.suspect import suspect, suspects
from helpers.plots.valid import ahead, automaton, chosen, two_ways
