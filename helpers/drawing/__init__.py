"""Sheets to draw on, in the palette that all views share, for figures and for pictures of views."""
