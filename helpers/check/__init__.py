"""Checking of exercises; each notebook's exercises are in `helpers.chapters`.

`exercise` is an exercise as data, `result` what a checker returns, `guess` a prediction with its answer, and
`reader` what is known about the reader's own cells.
"""
