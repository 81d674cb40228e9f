"""Real engines under firsttoken: how they are installed, started and held against their own logs."""
