"""A sheet to draw on, in the palette of all views: what figures and pictures of views are made with."""
