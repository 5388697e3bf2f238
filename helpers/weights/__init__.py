"""The shipped checkpoint: config.json, model.safetensors and tokenizer.json, made by `tools/train.py`."""
