"""Everything that the notebooks import; this file imports nothing itself."""
