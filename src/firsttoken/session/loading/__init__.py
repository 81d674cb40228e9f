"""`weights` and `--prefetch`: what is loaded, from where, and how fast it can be."""
