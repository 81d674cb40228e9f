"""`check`: what a command will meet, looked at before or beside its start."""
