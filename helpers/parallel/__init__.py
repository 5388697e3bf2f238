"""Several processes that share nothing and run one model together: what each does, and what they send."""
