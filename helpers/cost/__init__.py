"""What a reply costs, in closed form: `counts` of passes, and the `models` that people run."""
