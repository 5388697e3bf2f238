"""Small explorers with a knob or two, one file each.

Each has a live form, made of ipywidgets, and a picture of its first settings, which needs no kernel.
"""

from helpers.explorers.reply import CostOfReply
from helpers.explorers.words import NextWord

# As the notebooks call them: what they show is what counts there.
cost_of_reply, next_word = CostOfReply, NextWord
