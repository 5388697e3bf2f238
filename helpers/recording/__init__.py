"""Run a decoder and record what it does: `toy.record_toy`, `model.record_model`, `hf.watch`."""
