"""The project's commands. `python -m tools` lists them; run it from the repository's root."""
