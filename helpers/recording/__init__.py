"""Run a decoder and write down what it does: `toy.record_toy`, `model.record_model`."""
