"""Checkers of the exercises, one module a notebook: `from helpers.check import n03 as check`.

`exercise` is an exercise as data, `result` what a checker answers, `guess` a prediction beside its answer,
`reader` what is known of the reader's own cells.
"""
