"""Where trials run at once: each on GPUs and a port of its own, so that none disturbs another.

The first place is the command as the user typed it: what is verified in the end is verified there. Every other one is given the next GPUs
that the user's shell would see, and a free port. Whether the failure shows there at all has to be seen before its trials count.
"""

import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.model.isolation import Change, Setting
from firsttoken.session.isolating.command import Read
from firsttoken.survey.gpus import Gpus, read_gpus, visible


class NoPlaces(Exception):
    """Trials cannot run at once. The text says why, and what can be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`gpus`: what its server is to see, none where the machine has none. Number 0: the command as it is."""

    number: int = 0
    gpus: tuple[str, ...] = ()

    def moved(self, read: Read, port: int | None) -> tuple[Setting, ...]:
        """What has to be changed in the command for it to run here."""
        changes = []
        if self.gpus:
            changes.append(Change(kind="env", name="CUDA_VISIBLE_DEVICES", action="set", values=(",".join(self.gpus),)))
        if self.number and port is not None:
            changes.append(Change(kind="flag", name=read.port_flag or "--port", action="set", values=(str(port),)))
        return (Setting(label=f"place {self.number}", changes=tuple(changes)),) if changes else ()


def places(read: Read, count: int, gpus: Gpus | None = None) -> tuple[Place, ...]:
    """`count` of them. `gpus`: of this machine; None: look. NoPlaces where the command or the machine does not allow as many."""
    if count == 1:
        return (Place(),)
    plan = read.plan
    if read.command.first is None or read.command.client:
        raise NoPlaces(f"only a command whose flags can be seen can be given a port and GPUs of its own: {read.not_read or 'a container'}")
    if read.alone:
        raise NoPlaces(f"{', '.join(read.alone)} ties the server to this machine's other ports, GPUs or nodes; one trial at a time, then")
    if plan.endpoint.unix_socket is not None or (plan.endpoint.port and read.port_flag is None):
        raise NoPlaces("where the server listens cannot be changed by a flag that is known")
    found = gpus if gpus is not None else read_gpus(details=False)
    if not found.found:
        if found.devices:
            raise NoPlaces(f"which GPUs there are cannot be told: {found.problem or 'nvidia-smi names none'}")
        return tuple(Place(number=number) for number in range(count))
    env = {**read.command.environment, **{name: value for name, (_, value) in read.command.assigned.items()}}
    by_uuid = env.get("CUDA_VISIBLE_DEVICES", "").startswith(("GPU-", "MIG-"))
    names = [gpu.uuid if by_uuid else str(gpu.index) for gpu in visible(found.found, env)]
    return _on_gpus(names, plan.sizes.ranks_here, count)


def free_ports(places: Sequence[Place], host: str | None) -> list[int]:
    """One for each, all different, free when they were looked for."""
    family = socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
    with contextlib.ExitStack() as stack:
        found = []
        for _ in places:
            probe = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            probe.bind(("", 0))
            found.append(int(probe.getsockname()[1]))
        return found


def _on_gpus(names: Sequence[str], ranks: int, count: int) -> tuple[Place, ...]:
    most = len(names) // ranks
    if count > most:
        raise NoPlaces(
            f"each trial takes {ranks} of the {len(names)} GPUs that can be seen: "
            + (f"--parallel {most} is the most" if most > 1 else "no two fit beside each other")
        )
    return tuple(Place(number=at, gpus=tuple(names[at * ranks : (at + 1) * ranks]) if at else ()) for at in range(count))
