"""Explorers: interactive pictures with controls, one explorer per module.

Each explorer has two forms. With a running kernel, its controls are ipywidgets. Without a kernel, a still
picture shows the initial settings.
"""

from helpers.explorers.words import NextWordExplorer

next_word = NextWordExplorer  # notebooks call it like a function
