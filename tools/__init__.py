"""The project's commands: `python -m tools` lists them. Run from the repository's root."""
