"""Several processes that share no memory and run one model together: what each runs, and what they send."""
