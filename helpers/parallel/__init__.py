"""Run one model in several processes that share no memory, and count the bytes that each process sends."""
