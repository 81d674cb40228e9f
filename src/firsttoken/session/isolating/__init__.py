"""`isolate`: launches with settings changed, until the ones at fault are known."""
