"""The options of several engines: how many replicas, how requests are shared out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kvbudget.cli.options import NUMBER
from kvbudget.errors import InputError
from kvbudget.model.shapes import Group

if TYPE_CHECKING:
    from kvbudget.deployment import Deployment
    from kvbudget.simulation.replicas import Fleet


class Replicas(click.ParamType):  # type: ignore[type-arg] # generic in newer releases only
    """How many replicas, or that they are to be counted."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return a number, which the library checks, or auto."""
        return value if value == "auto" else NUMBER.convert(value, param, ctx)


REPLICAS = Replicas()


class AskedFleet(NamedTuple):
    """A fleet as options say it.

    Attributes:
        fleet: The engines; of one replica where they are to be counted.
        counted: Whether they are.
        target_ttft_s: The time to the first token for which they are.
    """

    fleet: Fleet
    counted: bool
    target_ttft_s: float | None

    @property
    def several(self) -> bool:
        """Whether there is, or may be, more than one engine."""
        return self.counted or self.fleet.engines > 1


def asked_fleet(d: Deployment, replicas: Any, routing: str | None, target_ttft_s: float | None) -> AskedFleet:  # noqa: ANN401
    """Return the fleet that the options describe.

    Raises:
        InputError: A value is refused, or an option does nothing.
    """
    counted = replicas == "auto"
    if target_ttft_s is not None and not counted:
        raise InputError("--target-ttft is what --replicas auto counts for; give that too.")
    if target_ttft_s is not None and not target_ttft_s > 0:
        raise InputError(f"--target-ttft is {target_ttft_s!r}; give seconds, such as 0.5.")
    return AskedFleet(fleet_of(d, 1 if counted else replicas, routing), counted, target_ttft_s)


def fleet_of(d: Deployment, replicas: Any, routing: Any) -> Fleet:  # noqa: ANN401 - checked by the library
    """Return so many replicas of a deployment, whose data parallel engines are told apart.

    Raises:
        InputError: A value is refused.
    """
    from kvbudget.simulation.replicas import Fleet, check_fleet  # noqa: PLC0415 - after the options are read

    if routing is not None and replicas is None:
        raise InputError("--routing chooses between replicas; give --replicas too.")
    if replicas == "auto":
        raise InputError("--replicas auto counts those of one workload, which `kvbudget simulate` does; give numbers.")
    fleet = Fleet(1 if replicas is None else replicas, routing or "round-robin", d.data_parallel_size)
    check_fleet(fleet)
    return fleet


def fleet_warnings(d: Deployment) -> tuple[str, ...]:
    """Return what is not simulated of a deployment's engines."""
    if d.data_parallel_size == 1 or not d.model.parameters_by_group().get(Group.EXPERTS):
        return ()
    return ("Data parallel engines of a model with experts wait for each other in every step; here none does.",)
