"""Timelines worked by hand, files read back by a reader of our own, and one of a real run."""

from __future__ import annotations

import datetime
import itertools
import json
import time

import numpy as np
import pytest

from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.perf.timeline import Timeline, region_labels, write_chrome, write_paraver
from gpt2lib.runtimes import TraceBuffer

LABELS = {3: "matmul", 7: "softmax"}


def timeline(*records, threads=2, duration=100):
    array = np.array([*records], TraceBuffer.dtype)
    return Timeline(threads, duration, array[np.argsort(array["start_ns"], kind="stable")], LABELS)


@pytest.fixture
def by_hand():
    """Two threads, 100 ns: 10-40 and 60-80 on one, 10-30 on the other."""
    return timeline((3, 0, 0, 10, 40), (3, 1, 1, 10, 30), (7, 0, 0, 60, 80))


def test_shares_by_hand(by_hand):
    """Busy 50 and 20, mean 35; somebody works for 30 + 20 = 50 of 100."""
    np.testing.assert_array_equal(by_hand.busy(), [50, 20])
    assert by_hand.covered() == 50
    shares = by_hand.efficiency()
    assert shares.parallel == pytest.approx(0.35)
    assert shares.load_balance == pytest.approx(0.7)
    assert shares.communication == pytest.approx(1.0)
    assert shares.serial == pytest.approx(0.5)
    assert by_hand.by_region() == {"matmul": 50, "softmax": 20}


def test_taking_turns_is_communication():
    """Each thread works for 50, never both: balanced, nothing serial, half of it lost."""
    shares = timeline((3, 0, 0, 0, 50), (3, 1, 1, 50, 100)).efficiency()
    assert shares == pytest.approx((0.5, 1.0, 0.5, 1.0))


def test_a_thread_that_did_nothing_counts():
    shares = timeline((3, 0, 0, 0, 100)).efficiency()
    assert shares == pytest.approx((0.5, 0.5, 1.0, 1.0))


def test_the_paraver_files_by_hand(by_hand, tmp_path):
    when = datetime.datetime(2024, 5, 12, 10, 21)
    write_paraver(tmp_path / "run.prv", by_hand, when=when)
    assert (tmp_path / "run.prv").read_text(encoding="utf-8").splitlines() == [
        "#Paraver (12/05/2024 at 10:21):100_ns:1(2):1:1(2:1)",
        "1:1:1:1:1:0:10:0",
        "1:2:1:1:2:0:10:0",
        "1:1:1:1:1:10:40:1",
        "1:2:1:1:2:10:30:1",
        "2:1:1:1:1:10:84000001:4:84000002:1",
        "2:2:1:1:2:10:84000001:4:84000002:2",
        "1:2:1:1:2:30:100:0",
        "2:2:1:1:2:30:84000001:0:84000002:0",
        "1:1:1:1:1:40:60:0",
        "2:1:1:1:1:40:84000001:0:84000002:0",
        "1:1:1:1:1:60:80:1",
        "2:1:1:1:1:60:84000001:8:84000002:1",
        "1:1:1:1:1:80:100:0",
        "2:1:1:1:1:80:84000001:0:84000002:0",
    ]
    names = (tmp_path / "run.pcf").read_text(encoding="utf-8")
    assert "\n4  matmul\n8  softmax\n" in names
    rows = (tmp_path / "run.row").read_text(encoding="utf-8")
    assert "LEVEL THREAD SIZE 2\nthread 0\nthread 1\n" in rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.pcf", "run.prv", "run.row"]


def test_a_chunk_that_follows_at_once_ends_the_one_before(tmp_path):
    write_paraver(tmp_path / "a.prv", timeline((3, 0, 0, 0, 50), (7, 0, 0, 50, 100), threads=1))
    events = [line for line in read(tmp_path / "a.prv") if line[0] == 2]
    assert [(line[5], line[7]) for line in events] == [(0, 4), (50, 8), (100, 0)]


def read(path):
    """Read a trace's records as lists of numbers."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return [[int(word) for word in line.split(":")] for line in lines]


def check_paraver(path, threads, duration):
    """Check order and ranges, and that the states of each thread fill its whole line."""
    records = read(path)
    times = [line[5] for line in records]
    assert times == sorted(times)
    for thread in range(1, threads + 1):
        states = [line for line in records if line[0] == 1 and line[4] == thread]
        assert states[0][5] == 0
        assert states[-1][6] == duration
        assert all(a[6] == b[5] for a, b in itertools.pairwise(states))
        assert all(line[6] > line[5] for line in states)
        events = [line for line in records if line[0] == 2 and line[4] == thread]
        assert not events or events[-1][7] == 0
    assert {line[4] for line in records} <= set(range(1, threads + 1))
    assert {line[7] for line in records if line[0] == 1} <= {0, 1}


def test_the_chrome_file(by_hand, tmp_path):
    write_chrome(tmp_path / "run.json", by_hand)
    events = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names == ["thread 0", "thread 1"]
    last = [e for e in events if e["ph"] == "X"][-1]
    assert (last["name"], last["tid"], last["ts"], last["dur"]) == ("softmax", 0, 0.06, 0.02)


@pytest.fixture
def noted(by_hand):
    """The same, with notes: a forward of layer 1 (two chunks), then an update of no layer."""
    notes = np.array([(0, 1, 0, 5), (0, 1, 0, 5), (1, -1, 2, 5)], Timeline.note)
    return by_hand.with_notes(notes, ("linear_forward", "adamw_update"))


def test_notes_in_the_paraver_files(noted, tmp_path):
    write_paraver(tmp_path / "run.prv", noted)
    check_paraver(tmp_path / "run.prv", 2, 100)
    events = [line[5:] for line in read(tmp_path / "run.prv") if line[0] == 2 and line[4] == 1]
    types = [84000001 + i for i in range(6)]
    for event, values in zip(
        events, ([4, 1, 1, 3, 1, 6], [0] * 6, [8, 1, 2, 1, 3, 6], [0] * 6), strict=True
    ):
        assert event[1::2] == types
        assert event[2::2] == values
    assert [event[0] for event in events] == [10, 40, 60, 80]
    names = pcf(tmp_path / "run.pcf")
    assert names["Kernel"] == {0: "End", 4: "matmul", 8: "softmax"}
    assert names["Operation"] == {0: "End", 1: "linear_forward", 2: "adamw_update"}
    assert names["Layer"] == {0: "End", 1: "none", 3: "layer 1"}
    assert names["Phase"] == {0: "End", 1: "forward", 2: "backward", 3: "update"}
    assert names["Iteration"] == {0: "End", 6: "iteration 5"}


def pcf(path):
    """Read the values of each event type."""
    found, name, values = {}, None, False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line == "EVENT_TYPE":
            name, values = "", False
        elif name == "":
            name = line.split(None, 2)[2]
            found[name] = {}
        elif line == "VALUES":
            values = True
        elif not line:
            name = None
        elif name and values:
            number, words = line.split(None, 1)
            found[name][int(number)] = words
    return found


def test_notes_in_the_chrome_file(noted, tmp_path):
    write_chrome(tmp_path / "run.json", noted)
    events = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["traceEvents"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert rows == {0: "thread 0", 1: "thread 1", 2: "phases"}
    first, *_, last = [e for e in events if e["ph"] == "X" and e["tid"] < 2]
    assert first["cat"] == "forward"
    assert first["args"] == {
        "chunk": 0, "operation": "linear_forward", "layer": "1", "phase": "forward", "iteration": 5,
    }  # fmt: skip
    assert last["args"]["layer"] == "none"
    phases = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == 2]
    assert phases == [("forward", 0.01, 0.03), ("update", 0.06, 0.02)]


def test_sums_and_spans_of_notes(noted, by_hand):
    assert noted.by_note("layer") == {-1: 20, 1: 50}
    assert noted.by_note("phase") == {0: 50, 2: 20}
    assert [tuple(span) for span in noted.spans()] == [(5, 0, 10, 40), (5, 2, 60, 80)]
    assert by_hand.spans() == []
    with pytest.raises(ValueError, match="no notes"):
        by_hand.by_note("layer")
    with pytest.raises(ValueError, match="2 notes for 3 records"):
        by_hand.with_notes(noted.notes[:2], ())


def test_a_part_of_a_timeline(noted):
    part = noted.part(50, 90)
    assert part.duration == 40
    assert part.records[["start_ns", "end_ns"]].tolist() == [(10, 30)]
    assert part.notes["layer"].tolist() == [-1]
    with pytest.raises(ValueError, match="outside"):
        noted.part(20, 90)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([(3, 0, 2, 0, 10)], "names thread 2"),
        ([(3, 0, 0, -1, 10)], "outside the timeline"),
        ([(3, 0, 0, 0, 101)], "outside the timeline"),
        ([(3, 0, 0, 0, 20), (3, 1, 0, 10, 30)], "overlap"),
        ([(3, 0, 0, 20, 10)], "backwards"),
    ],
)
def test_records_that_cannot_be_are_refused(records, message):
    with pytest.raises(ValueError, match=message):
        timeline(*records)


def test_nothing_ran_and_other_names_are_refused(by_hand, tmp_path):
    with pytest.raises(ValueError, match="nothing ran"):
        timeline().efficiency()
    with pytest.raises(ValueError, match=r"ends in \.prv"):
        write_paraver(tmp_path / "run.txt", by_hand)
    assert not list(tmp_path.iterdir())


def traced(capacity=1 << 14):
    """Trace one loss and backward of a small model on two threads."""
    config = GPT2Config(vocab_size=64, context=64, layers=2, heads=2, channels=32)
    model = GPT2(config, backend="numba", runtime="threads", threads=2, seed=0)
    ids = np.random.default_rng(0).integers(0, 64, (2, 64))
    model.loss(ids, ids)
    model.backward()
    runtime, buffer = model.ops.runtime, TraceBuffer(capacity)
    try:
        runtime.trace = buffer
        begin = time.perf_counter_ns()
        model.loss(ids, ids)
        model.backward()
        end = time.perf_counter_ns()
    finally:
        runtime.trace = None
    return Timeline.from_buffer(buffer, threads=2, labels=region_labels(), begin=begin, end=end)


def test_a_real_run(tmp_path):
    run = traced()
    names = set(run.by_region())
    assert {"attention_forward_blocks", "layernorm_backward_rows"} <= names
    assert not any(name.startswith("region ") for name in names)
    shares = run.efficiency()
    assert shares.parallel == pytest.approx(
        shares.load_balance * shares.communication * shares.serial
    )
    assert all(0 < share <= 1 for share in shares)
    write_paraver(tmp_path / "real.prv", run)
    check_paraver(tmp_path / "real.prv", 2, run.duration)
    write_chrome(tmp_path / "real.json", run)


def test_a_buffer_too_small_is_refused():
    with pytest.raises(ValueError, match="capacity of at least"):
        traced(capacity=3)
