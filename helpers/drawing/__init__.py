"""What figures and views share: a sheet to draw on, one palette, text measurement, and cell outputs."""
