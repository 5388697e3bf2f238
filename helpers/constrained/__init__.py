"""Constrained decoding: `grammar` compiles rules to a table of states, `decoding` masks logits by it."""
