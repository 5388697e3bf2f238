"""Serving many requests with one model: pages, a scheduler, and an engine that runs what it says."""
