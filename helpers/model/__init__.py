"""A decoder of the Llama family in PyTorch: config, cache, attention, transformer, generation, checkpoints.

Positions and layer indices start at 0. Nothing in this package depends on widgets or traces.
"""
