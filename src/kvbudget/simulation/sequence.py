"""A request on its way through the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.simulation.prefixes import Keys


class Sequence:
    """What the scheduler knows of a request.

    Attributes:
        index: Its place in the workload, which tells it from all others.
        arrival: Picoseconds.
        priority: Smaller is served earlier, where the policy is by priority.
        prompt_tokens: Tokens of its prompt.
        last_token: Tokens that it has when it ends.
        keys: What its prefixes are.
        tokens: Tokens that are known: the prompt and what came back from the steps that are done.
        computed: Tokens whose keys and values exist, or will when the steps in flight are done.
        promised: Tokens that steps in flight will bring (vLLM ``num_output_placeholders``).
        in_flight: Tokens scheduled in steps that are not done.
        stale: Those of them that were scheduled before it was preempted.
        prefilling: Whether its last step left a part of its prompt.
        preemptions: How often its blocks were taken.
        shared_boundary: Where others were seen to part from it, as far as its states and windows must be kept; or 0.
        reached: The furthest that it was ever computed; what is computed again below is lost work.
        failed: Whether the engine ended it with an error; vLLM's scheduler never does.
        place: Its place among all that were admitted, where requests are counted (`kvbudget.simulation.counting`).
        counted: Whether it is one of those.
        offset: By how much its computed tokens are more than the steps of the engine; if it is counted.
        last_step: The step that computes the last of its tokens; if it is counted.
    """

    __slots__ = (
        "arrival",
        "computed",
        "counted",
        "failed",
        "in_flight",
        "index",
        "keys",
        "last_step",
        "last_token",
        "offset",
        "place",
        "preemptions",
        "prefilling",
        "priority",
        "promised",
        "prompt_tokens",
        "reached",
        "shared_boundary",
        "stale",
        "tokens",
    )

    def __init__(
        self, index: int, arrival: int, prompt_tokens: int, output_tokens: int, priority: int, keys: Keys
    ) -> None:
        self.index = index
        self.arrival = arrival
        self.priority = priority
        self.prompt_tokens = self.tokens = prompt_tokens
        self.last_token = prompt_tokens + output_tokens
        self.keys = keys
        self.computed = self.promised = self.in_flight = self.stale = 0
        self.prefilling = self.failed = self.counted = False
        self.place = self.offset = self.last_step = 0
        self.preemptions = self.shared_boundary = self.reached = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place among others, where the policy is by priority."""
        return (self.priority, self.arrival, self.index)

    @property
    def prefill_end(self) -> int:
        """Where its prefill ends, which takes what it generated before a preemption in."""
        return max(self.prompt_tokens, self.tokens - 1)

    @property
    def resumable_at(self) -> tuple[int, ...]:
        """Where a later request can go on from its blocks (vLLM ``replay_boundaries`` and the shared boundary)."""
        end = self.prompt_tokens - 1
        return (end, self.shared_boundary) if self.shared_boundary else (end,)
