"""Constrained decoding: a `grammar` as a table of states, and `decoding` that masks logits by it."""
