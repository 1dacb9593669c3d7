"""vLLM: which layers share a block table.

Source: vLLM 0.32, v1/core/kv_cache_utils.py (get_kv_cache_groups); the differences of the versions since 0.8.5 are in
`kvbudget.facts.vllm_cache`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.engines.vllm_parts import cdiv, dotted
from kvbudget.engines.vllm_specs import Spec
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import vllm_cache as facts
from kvbudget.facts.vllm import at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kvbudget.facts.vllm import Version

Held = list[tuple[Spec, list[int]]]
"""What the layers of a group keep, and the numbers of the layers that do."""


def group_layers(version: Version, specs: Mapping[Spec, list[int]], *, packed: bool, stages: int) -> list[Held]:
    """Return the layers of each group, in the order in which the engine makes them.

    Args:
        version: The engine's version.
        specs: What layers keep, and the numbers of the layers that do.
        packed: Pages of different sizes may stand side by side in a block.
        stages: Pipeline stages.

    Raises:
        InputError: The engine cannot share blocks between these kinds.
        CannotTell: The version's rule is not known here.
    """
    rule = at(facts.GROUPING, version)
    if not specs:
        return []
    if len(specs) == 1 or (rule.mixed_pages and _one_type(specs)):
        return [list(specs.items())]
    if packed:
        return _packed(version, specs)
    unified = _unified(version, specs, rule)
    if not rule.dealt and stages > 1:
        raise CannotTell(
            f"vLLM {dotted(version)} groups layers of several kinds stage by stage, which is not covered; leave "
            "--pipeline-parallel-size out or choose --engine-version 0.11 or newer.",
            key="pipeline_parallel_size",
        )
    counts = [len(numbers) for numbers in unified.values()]
    size = max(counts) if max(counts) < min(counts) * rule.ratio else min(counts)
    groups: list[Held] = []
    for spec, numbers in unified.items():
        pieces = cdiv(len(numbers), size)
        for i in range(pieces):
            dealt = numbers[i::pieces] if rule.dealt else numbers[i * size : (i + 1) * size]
            groups.append([(spec, dealt)])
    return groups


def _one_type(specs: Mapping[Spec, list[int]]) -> bool:
    return len({spec.block_size for spec in specs}) == 1 and len({spec.family for spec in specs}) == 1


def _unified(version: Version, specs: Mapping[Spec, list[int]], rule: facts.Grouping) -> dict[Spec, list[int]]:
    """Return the specs with pages of one size: smaller ones get larger blocks, or padding where no multiple fits."""
    page = max(spec.page_bytes for spec in specs)
    unified: dict[Spec, list[int]] = {}
    for spec, numbers in specs.items():
        larger = spec
        if spec.page_bytes != page:
            ratio, rest = divmod(page, spec.page_bytes)
            if spec.kind == "state" and rule.padded:
                larger = spec._replace(page_bytes=page)
            elif rest == 0 and rule.unified and spec.kind != "state":
                larger = spec._replace(page_bytes=page, block_size=spec.block_size * ratio)
            elif rule.padded and spec.kind not in ("mla", "indexer", "state"):
                larger = spec._replace(page_bytes=page)
            else:
                raise InputError(
                    f"vLLM {dotted(version)} cannot share blocks between this model's kinds of cache (pages "
                    f"of {page:,} and {spec.page_bytes:,} bytes), so it refuses; choose another --kv-cache-dtype, "
                    "layout or version."
                )
        unified.setdefault(larger, []).extend(numbers)
    for numbers in unified.values():
        numbers.sort()
    return unified


# -- pages side by side (_get_packed_kv_cache_groups)

Bucket = dict[int, list[tuple[int, Spec]]]
"""Layers of one family and block size by the bytes of their page."""


def _packed(version: Version, specs: Mapping[Spec, list[int]]) -> list[Held]:
    """Return groups whose blocks are equally wide by the layers that they hold, not by padding.

    A bucket with as many layers of each page size is a pattern that repeats; such buckets are cut into groups of about
    the same number of repeats. Others stay whole.
    """
    rule = at(facts.PACKED, version)
    if rule == "unknown":
        raise CannotTell(
            f"How vLLM {dotted(version)} groups compressed caches was not read; choose --engine-version "
            f"{dotted(facts.PACKED[1][0])} or newer.",
            key="engine_version",
        )
    buckets = _buckets(specs)
    patterns = [_most(bucket) for bucket in buckets if _repeats(bucket)]
    floor = max((_most(bucket) for bucket in buckets if _repeats(bucket) and len(bucket) > 1), default=0)
    repeats = _least_padding(patterns, floor) if floor else 0
    pieces = [cdiv(_most(bucket), repeats) if repeats and _repeats(bucket) else 1 for bucket in buckets]
    if not repeats and rule == "split":
        pieces = _split_windows(buckets, pieces)
    return [held for bucket, count in zip(buckets, pieces, strict=True) for held in _dealt(bucket, count)]


def _buckets(specs: Mapping[Spec, list[int]]) -> list[Bucket]:
    buckets: dict[tuple[object, ...], Bucket] = {}
    for spec, numbers in specs.items():
        pages = buckets.setdefault((spec.block_size, *spec.family), {})
        pages.setdefault(spec.page_bytes, []).extend((number, spec) for number in numbers)
    return list(buckets.values())


def _most(bucket: Bucket) -> int:
    """Return the layers of the page size that has most."""
    return max(map(len, bucket.values()))


def _repeats(bucket: Bucket) -> bool:
    return len(set(map(len, bucket.values()))) == 1


def _least_padding(counts: Sequence[int], floor: int) -> int:
    """Return the size from `floor` on whose multiples are least above the counts, the largest of equals."""
    return min(range(floor, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


def _split_windows(buckets: Sequence[Bucket], pieces: Sequence[int]) -> list[int]:
    """Return the pieces with windows cut to as many layers as the widest other bucket's block has room for."""
    layers = [sum(map(len, bucket.values())) for bucket in buckets]
    windows = [next(iter(bucket.values()))[0][1].kind == "sliding" for bucket in buckets]
    widest = max(
        sum(cdiv(len(held), count if window else 1) * page for page, held in bucket.items())
        for bucket, count, window in zip(buckets, layers, windows, strict=True)
    )
    return [
        cdiv(count, max(1, widest // next(iter(bucket)))) if window else piece
        for bucket, count, window, piece in zip(buckets, layers, windows, pieces, strict=True)
    ]


def _dealt(bucket: Bucket, pieces: int) -> Iterator[Held]:
    """Yield the groups of a bucket: its layers are dealt in turn, each page size for itself."""
    for i in range(pieces):
        held: dict[Spec, list[int]] = {}
        for layers in bucket.values():
            for number, spec in sorted(layers, key=lambda layer: layer[0])[i::pieces]:
                held.setdefault(spec, []).append(number)
        yield list(held.items())
