"""Constrained decoding: `grammar` compiles rules to a table of states, with which `decoding` masks logits."""
