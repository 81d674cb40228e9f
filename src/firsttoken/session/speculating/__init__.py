"""`speculate`: the same server with and without speculation, side by side."""
