"""Tools that check a reader's answers. The exercises of each notebook are in `helpers.chapters`.

`exercise` defines an exercise as data, `result` the object that a check returns, and `guess` a prediction to
compare with its answer. `reader` deals with the reader's own cells.
"""
