"""Checkers of the exercises, one module a part: `from helpers.check import part1 as check`.

`result` says what a checker answers, `cases` runs what a reader wrote; both serve every part.
"""
