"""Tools that check a reader's answers. The exercises of each notebook are in `helpers.chapters`.

`exercise` defines an exercise, `result` the object that a check returns, and `guess` a prediction to compare
with the answer. `reader` supports the reader's own cells.
"""
