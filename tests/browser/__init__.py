"""Pages that people open, in a real browser."""
