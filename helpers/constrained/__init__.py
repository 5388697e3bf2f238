"""Constrained decoding. `grammar` compiles rules to a table of states; `decoding` uses it to mask logits."""
