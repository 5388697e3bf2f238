"""Small explorers with a knob or two, one file each.

Each has a static form, a plain table that reads without a kernel, and a live one made of ipywidgets.
"""

from helpers.explorers.drafts import DraftsThatPay
from helpers.explorers.reply import CostOfReply
from helpers.explorers.serving import PeopleInLine
from helpers.explorers.step import StepOnCard
from helpers.explorers.users import UsersOnCards
from helpers.explorers.words import NextWord

# As the notebooks call them: what they show is what counts there.
cost_of_reply, next_word, step_on_card, users_on_cards = CostOfReply, NextWord, StepOnCard, UsersOnCards
people_in_line, drafts_that_pay = PeopleInLine, DraftsThatPay
