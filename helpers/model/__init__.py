"""A decoder of the Llama family in PyTorch: config, cache, attention, transformer, generation, checkpoints.

Positions and layers count from 0. Nothing here depends on widgets or traces.
"""
