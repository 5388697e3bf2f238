"""Run a decoder or an engine, and record what it does in a trace.

`toy.record_toy` records the toy, `model.record_model` records this project's `Transformer`, `hf.watch`
records a model from `transformers`, and `engine.StepRecorder` records an engine.
"""
