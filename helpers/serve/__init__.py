"""Serve many requests with one model: a pool of pages, a scheduler, and an engine that runs its plans."""
