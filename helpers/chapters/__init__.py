"""What one notebook alone uses, a file for each: its exercises, figures and experiments."""
