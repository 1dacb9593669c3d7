"""Workloads that are played several times are read once and come back as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvbudget.workload.kept import Kept
from kvbudget.workload.request import Request, Segment

SEGMENTS = st.lists(st.builds(Segment, st.integers(0, 9), st.integers(1, 99)), max_size=3).map(tuple)
REQUESTS = st.lists(
    st.builds(
        Request,
        st.floats(0, 1e6),
        st.integers(1, 1 << 30),
        st.integers(0, 1 << 30),
        SEGMENTS,
        st.one_of(st.none(), st.integers(0, 99)),
        st.integers(-9, 9),
    )
)


@given(REQUESTS)
def test_requests_come_back_each_time(requests: list[Request]) -> None:
    kept = Kept(iter(requests))
    assert list(kept) == list(kept) == requests
    assert len(kept) == len(requests)


def test_what_a_limit_cuts_and_how_long_arrivals_last() -> None:
    kept = Kept([Request(1.0, 10, 5), Request(2.0, 10, 6), Request(5.0, 16, 1), Request(7.0, 14, 3)])
    assert kept.cut_at(15) == 2
    assert kept.seconds == 6
    assert Kept([]).seconds == 0
