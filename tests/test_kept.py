"""Workloads that are played several times are read once and come back as they were."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.errors import InputError
from kvbudget.workload import kept as module
from kvbudget.workload.kept import Kept, shared_trace, shared_workload
from kvbudget.workload.recorded import Trace
from kvbudget.workload.request import Request, Segment
from kvbudget.workload.spec import WorkloadSpec, parse_workload
from kvbudget.workload.traces import read_trace

if TYPE_CHECKING:
    from pathlib import Path

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


def shared(path: Path) -> list[Request]:
    trace = shared_trace(str(path))
    assert isinstance(trace, Trace)
    return list(trace.requests())


def test_a_trace_is_shared_until_its_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.csv"
    rows = "timestamp,prompt,output\n" + "".join(f"{i},{i + 1},{i % 3}\n" for i in range(30))
    path.write_text(rows)
    found = shared(path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "read_trace", lambda *_: pytest.fail("it was read again"))
        assert shared(path) == found
    trace = read_trace(path)
    assert isinstance(trace, Trace)
    assert found == list(trace.requests())
    again = shared_trace(str(path))
    assert isinstance(again, Trace)
    list(again.requests())
    assert again.left_out == trace.left_out == 10
    path.write_text(rows + "30,5,5\n")
    os.utime(path, ns=(1, 1))
    assert len(shared(path)) == 21


def test_workloads_are_the_same_from_a_shared_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,prompt,output\n" + "".join(f"{i},{i + 1},9\n" for i in range(30)))
    for options in ({}, {"requests": "7"}, {"rate": "3"}, {"rate": "3", "bootstrap": True, "requests": "50"}):
        spec = WorkloadSpec(trace=str(path), **options)
        assert list(shared_workload(spec).stream()) == list(parse_workload(spec).stream())


def test_what_is_too_large_or_broken_far_behind_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,prompt,output\n" + "0,1,1\n" * 30)
    monkeypatch.setattr(module, "MOST_SHARED", 10)
    assert len(shared(path)) == 30
    monkeypatch.setattr("kvbudget.workload.recorded.REORDERED", 8)
    path.write_text("timestamp,prompt,output\n" + "0,1,1\n" * 8 + "0,x,1\n")
    trace = shared_trace(str(path))
    assert isinstance(trace, Trace)
    with pytest.raises(InputError, match="line 10 has 'x' prompt tokens"):
        list(islice(trace.requests(), 30))
