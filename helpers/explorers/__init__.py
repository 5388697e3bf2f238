"""Explorers: interactive pictures with controls, one per file.

Each has a live form, built with ipywidgets, and a still picture at its initial settings, which needs no
kernel.
"""

from helpers.explorers.words import NextWordExplorer

next_word = NextWordExplorer  # notebooks call it like a function
