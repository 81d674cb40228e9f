"""Measuring a server: prompts, load, what the client saw, what the engine counted, and what follows from both.

`client`, `load` and `asking` talk to servers; all other modules are pure.
"""
