"""Pure: from a command line to what will be run. The world comes in as a parameter; nothing here touches it."""

from firsttoken.plan.container import Container
from firsttoken.plan.make import Command, api_key, make_plan, read_command, replan
from firsttoken.plan.recognise import by_output, start
from firsttoken.plan.world import World

__all__ = ["Command", "Container", "World", "api_key", "by_output", "make_plan", "read_command", "replan", "start"]
