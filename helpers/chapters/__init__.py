"""One module per notebook, with the exercises, figures and experiments that only this notebook uses."""
