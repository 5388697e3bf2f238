"""Tools that check a reader's answers. The exercises of each notebook are in `helpers.chapters`.

`exercise` defines the exercises, `result` the objects that a check returns, and `guess` the predictions that
a reader compares with the answer. `reader` supports cells that contain the reader's own code.
"""
