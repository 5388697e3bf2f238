"""Serve many requests with one model, using a page manager, a scheduler and an engine.

The page manager decides which pages hold each request's KV entries, the scheduler decides which requests run
in each step, and the engine runs the model.
"""
