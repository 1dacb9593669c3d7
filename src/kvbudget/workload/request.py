"""One request as the scheduler sees it: when it comes, how long it is, and what it shares with others."""

from __future__ import annotations

from typing import NamedTuple


class Segment(NamedTuple):
    """A run of tokens that several requests may begin with; equal ids mean equal tokens."""

    id: int
    tokens: int


class Request(NamedTuple):
    """A request of a workload.

    Attributes:
        arrival: Seconds since the workload began (steps, where a simulation has no clock).
        prompt_tokens: Tokens of the prompt, the shared ones included.
        output_tokens: Tokens it generates before it ends.
        segments: What its prompt begins with and others may begin with too, in order; the rest of the prompt is its
            own. Two prompts share tokens as far as their segments agree from the first one on.
        output_segment: The id under which later prompts hold what this one generates (the next turn of a
            conversation), None if none does.
        priority: Smaller is served earlier where the policy is by priority (vLLM's ``--scheduling-policy priority``).
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    segments: tuple[Segment, ...] = ()
    output_segment: int | None = None
    priority: int = 0
