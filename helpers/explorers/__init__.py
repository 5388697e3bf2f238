"""Explorers: knobs over a picture, one file each.

Each has a live form, made of ipywidgets, and a picture of its first settings, which needs no kernel.
"""

from helpers.explorers.words import NextWord

next_word = NextWord  # as the notebook calls it: what it shows is what counts there
