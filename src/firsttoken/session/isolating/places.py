"""Where trials run at once: each on GPUs and a port of its own, so that none disturbs another.

The first place is the command as the user typed it: what is verified in the end is verified there. Every other one is given the next GPUs
that the user's shell would see, and a free port. Whether the failure shows there at all has to be seen before its trials count.
"""

import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.isolate.edit import edited
from firsttoken.isolate.settings import Wishes
from firsttoken.model.isolation import Change, Setting
from firsttoken.model.plan import Endpoint
from firsttoken.session.isolating.command import Read
from firsttoken.session.isolating.command import read as read_again
from firsttoken.survey.gpus import Gpus, read_gpus, visible

_GPUS = "CUDA_VISIBLE_DEVICES"
_RESETTING = {"sudo", "doas", "srun"}
"""Programs that choose by themselves which variables a server gets."""


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
            changes.append(Change(kind="env", name=_GPUS, action="set", values=(",".join(self.gpus),)))
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
    if plan.endpoint.port is None or (plan.endpoint.port and read.port_flag is None):
        raise NoPlaces("where the server listens cannot be changed by a flag that is known")
    found = gpus if gpus is not None else read_gpus(details=False)
    if found.devices and not found.found:
        raise NoPlaces(f"which GPUs there are cannot be told: {found.problem or 'nvidia-smi names none'}")
    if found.found:
        by_uuid = read.sees.get(_GPUS, "").startswith(("GPU-", "MIG-"))
        names = dict.fromkeys(gpu.uuid if by_uuid else str(gpu.index) for gpu in visible(found.found, read.sees))
        made = _on_gpus(list(names), plan.sizes.ranks_here, count)
    else:
        made = tuple(Place(number=number) for number in range(count))
    kept = _kept_from(read, made[1])
    if kept is not None:
        raise NoPlaces(f"something in the command keeps {kept} from the server")
    return made


def _kept_from(read: Read, place: Place) -> str | None:
    """What of a place does not reach the server; None where all does."""
    port = 1 if read.plan.endpoint.port else None
    there = read_again(edited(read.command, place.moved(read, port)), Wishes(), gpus=False)
    ahead = {os.path.basename(word) for word in read.command.argv[: read.command.first]}
    if place.gpus and (there.sees.get(_GPUS) != ",".join(place.gpus) or ahead & _RESETTING):
        return _GPUS
    return "a port of its own" if port is not None and there.plan.endpoint.port != port else None


def free_ports(places: Sequence[Place], endpoint: Endpoint) -> list[int]:
    """One for each, all different and none the command's own, free when they were looked for."""
    family = socket.AF_INET6 if ":" in (endpoint.host or "") else socket.AF_INET
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < len(places):
            probe = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
            found += [port] if port != endpoint.port else []
        return found


def _on_gpus(names: Sequence[str], ranks: int, count: int) -> tuple[Place, ...]:
    most = len(names) // ranks
    if count > most:
        raise NoPlaces(
            f"each trial takes {ranks} of the {len(names)} GPUs that can be seen: "
            + (f"--parallel {most} is the most" if most > 1 else "no two fit beside each other")
        )
    return tuple(Place(number=at, gpus=tuple(names[at * ranks : (at + 1) * ranks]) if at else ()) for at in range(count))
