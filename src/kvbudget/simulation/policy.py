"""What the loop of a simulation asks of an engine's policy, whichever engine it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sized

    from kvbudget.facts.policies import Words
    from kvbudget.simulation.scheduler import Scheduled
    from kvbudget.simulation.sequence import Sequence


class Policy(Protocol):
    """A scheduler between two steps."""

    @property
    def running(self) -> Sized:
        """The requests that hold a seat."""

    @property
    def waiting(self) -> Sized:
        """The requests that do not."""

    @property
    def used_blocks(self) -> int:
        """Blocks that requests hold."""

    @property
    def has_work(self) -> bool:
        """Whether there is a step to schedule."""

    def add(self, request: Sequence) -> None:
        """Let a request wait."""

    def schedule(self) -> Scheduled:
        """Return the next step, with its blocks taken."""

    def finish(self, step: Scheduled) -> Iterable[Sequence]:
        """Take in the tokens of a step that is done, and return the requests that end with them."""


class PolicySettings(Protocol):
    """What a policy may do, in its engine's own words."""

    @property
    def words(self) -> Words:
        """How the policy is spoken of."""

    @property
    def seats(self) -> int:
        """Requests that run at a time."""

    @property
    def max_model_len(self) -> int:
        """Tokens of a request; longer outputs are cut."""

    @property
    def max_prompt_len(self) -> int:
        """Tokens of a prompt; longer ones are refused."""

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold."""

    @property
    def enable_prefix_caching(self) -> bool:
        """Whether what a request leaves behind can be found by a later one."""

    @property
    def batches_in_flight(self) -> int:
        """Steps that are scheduled and not yet done."""

    def to_dict(self) -> dict[str, Any]:
        """Return them as plain data."""


class OtherSettings(PolicySettings, Protocol):
    """The settings of an engine that is not vLLM."""

    def with_seats(self, seats: int) -> OtherSettings:
        """Return the same with another number of seats."""

    def check(self) -> None:
        """Refuse settings with which the engine would not start, or would never end."""

    def scheduler(self) -> Policy:
        """Return a scheduler that begins with nothing."""
