"""The decision rule: how much must be seen before a still start is called hung. Data; `hang` applies it.

No time-out decides. Every quiet second and every look that shows the same again is evidence, and what it must come up to depends on two
things: how good the proof is (a circle of locks needs less than a sleep that nobody can see the end of), and how quiet this phase of this
engine is known to be when all is well. Healthy starts of vLLM 0.32 (cold compile on two ranks; MLA, eager) and SGLang 0.5 on a CPU were
never without a strong signal for two sampled seconds (one sample a second, idle machine).
"""

from dataclasses import dataclass

HEALTHY_QUIET = 2.0
"""sampled seconds without a strong signal that no healthy start reached, where nothing better is known of its phase"""
STRETCH = 2.0
"""a start must have been quiet for this many times of what healthy ones are known for"""
LONGEST_STRETCH = 30.0
"""seconds; one start that was quiet for minutes shall not hide all hangs of later ones"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """`still`: sampled seconds without a strong signal. `looks`: so many in a row show the same posture, over `span` seconds.
    `weighed`: quiet that is usual in the phase counts against it.
    """

    still: float
    looks: int
    span: float
    weighed: bool = True

    def needs(self, quiet: float) -> float:
        """Seconds of stillness in a phase whose healthy starts were known to be without a strong signal for `quiet` seconds."""
        return max(self.still, min(quiet * STRETCH, LONGEST_STRETCH)) if self.weighed else self.still


CYCLE = Bar(still=3.0, looks=3, span=1.5, weighed=False)
"""processes that hold what the next one wants: nothing in the run can end it"""
NOBODY = Bar(still=4.0, looks=3, span=1.5, weighed=False)
"""it waits for something that nobody can give any more: a FIFO without a writer, a lock file without an owner"""
OUTSIDE_AFTER = 4.0
"""seconds of stillness after which two looks alike tell what outside, which can be named, it waits for; told as waiting, never as hung"""
CLOSED = Bar(still=4.0, looks=4, span=2.5)
"""every path ends at a process that stands still and waits for nobody"""
ASLEEP = Bar(still=12.0, looks=4, span=2.5)
"""the same, but the last one sleeps or polls: it wakes up by itself and may go on"""
DRIVER = Bar(still=25.0, looks=6, span=10.0)
"""it is in a device's driver, which may work long without a trace: drivers start up, load code and take turns"""
SPINS = Bar(still=25.0, looks=6, span=10.0)
"""a wait that burns a core, known by its stack, while others wait for that rank"""
AT_REST = Bar(still=7.0, looks=5, span=3.5)
"""a server that has accepted a request: nothing works, everything stands where it stood"""
STOPPED_FOR = 6.0
"""seconds in state T: a debugger's or scheduler's short stop is none"""
