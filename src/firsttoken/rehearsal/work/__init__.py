"""What a process can do for a while other than its phase's work: be blocked, wait for others, be busy, or end.

Key insight: every one of these is the real mechanism, under a name that says what it does, because its stack is what people see.
"""
