"""`attach`: a server that somebody else started, found, followed and never touched."""
