"""Figures of traces and models, each with a text alternative: `Picture.alt`."""

from helpers.drawing.canvas import Picture
from helpers.plots.attention import attention_in_text
from helpers.plots.batches import input_batches, stacked_bars
from helpers.plots.contributions import logit_contributions
from helpers.plots.fingerprints import fingerprint_grid, fingerprint_grids
from helpers.plots.limit import waterfall
from helpers.plots.pages import page_pool
from helpers.plots.passes import score_triangle
from helpers.plots.probabilities import top_candidates
from helpers.plots.suspect import word_differences_of_pairs
from helpers.plots.valid import automaton, chosen_words, compare_probabilities
