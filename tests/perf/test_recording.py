"""Notes of layer, phase and iteration against chunks counted by hand; what a record costs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gpt2lib.config import GPT2Config
from gpt2lib.model import GPT2
from gpt2lib.optimizer import AdamW
from gpt2lib.perf.recording import Call, Overhead, Recording, notes, overhead
from gpt2lib.perf.timeline import PHASES, write_paraver
from tests.perf.test_timeline import check_paraver

LAYERS, NONE = 3, -1
CONFIG = GPT2Config(vocab_size=64, context=64, layers=LAYERS, heads=2, channels=32)

# B = 2, T = 64, so 128 rows of 32 channels. A LayerNorm's chunks are 32 rows forward and 16
# backward, attention's a head of a sequence; everything else is too small to be cut.
BLOCK_FORWARD = {
    "layernorm_forward_rows": 2 * 4,
    "linear_forward_tiles": 3,  # c_attn, attn.c_proj, mlp.c_proj
    "linear_gelu_forward_tiles": 1,
    "attention_forward_blocks": 2 * 2,
    "residual_forward_elements": 2,
}
BLOCK_BACKWARD = {
    "zero_elements": 5,  # dgelu, dbranch, dheads, dqkv, dheads
    "layernorm_backward_rows": 2 * 8,
    "add_partials": 2 * 2,  # gain and bias of two LayerNorms
    "weight_gradient_tiles": 4,
    "gelu_gradient_elements": 1,
    "input_gradient_tiles": 4,
    "attention_backward_heads": 2 * 2,
}
OUTSIDE = {
    "forward": {
        "embedding_forward_rows": 4,
        "layernorm_forward_rows": 4,
        "head_forward_tokens": 1,
        "cross_entropy_forward_rows": 1,
    },
    "backward": {
        "cross_entropy_backward_rows": 1,
        "zero_elements": 2,  # dhead, and the stream's gradient
        "head_backward_tokens": 1,
        "layernorm_backward_rows": 8,
        "add_partials": 1 + 2,  # the head's, and ln_f's gain and bias
        "embedding_backward_channels": 1,
    },
    "update": {"adamw_update_elements": 2},  # what decays, and the rest
}


@pytest.fixture(scope="module")
def model():
    return GPT2(CONFIG, backend="numba", runtime="threads", threads=2, seed=0)


@pytest.fixture
def optimizer(model):
    return AdamW(model.parameters, ops=model.ops)


IDS = np.random.default_rng(0).integers(0, 64, (2, 64))


def counted(timeline, iteration):
    """(layer, phase) -> how many chunks of each kernel."""
    found = {}
    for record, note in zip(timeline.records, timeline.notes, strict=True):
        if note["iteration"] == iteration:
            place = int(note["layer"]), PHASES[note["phase"]]
            found.setdefault(place, Counter())[timeline.label(int(record["region"]))] += 1
    return found


def expected():
    places = {(NONE, phase): Counter(counts) for phase, counts in OUTSIDE.items()}
    for layer in range(LAYERS):
        places[layer, "forward"] = Counter(BLOCK_FORWARD)
        places[layer, "backward"] = Counter(BLOCK_BACKWARD)
    return places


def test_every_chunk_has_its_layer_phase_and_iteration(model, optimizer, tmp_path):
    with Recording(model, optimizer) as recording:
        for recording.iteration in range(2):
            model.loss(IDS, IDS)
            model.backward()
            optimizer.step(model.gradients, zero_gradients=True)
    timeline = recording.timeline()
    assert counted(timeline, 0) == counted(timeline, 1) == expected()
    spans = [(span.iteration, PHASES[span.phase]) for span in timeline.spans()]
    assert spans == [(i, phase) for i in range(2) for phase in PHASES]
    assert all(
        a.end <= b.start for a, b in zip(timeline.spans(), timeline.spans()[1:], strict=False)
    )
    write_paraver(tmp_path / "a.prv", timeline)
    check_paraver(tmp_path / "a.prv", 2, timeline.duration)


def test_layers_come_in_their_order(model):
    """Up in the forward, down in the backward: the model's code says so, not the notes'."""
    with Recording(model) as recording:
        model.loss(IDS, IDS)
        model.backward()
    timeline = recording.timeline()
    for phase, order in (("forward", [0, 1, 2]), ("backward", [2, 1, 0])):
        layers = timeline.notes["layer"][timeline.notes["phase"] == PHASES.index(phase)]
        inside = layers[layers != NONE].tolist()
        assert list(dict.fromkeys(inside)) == order
        assert [a for a, b in zip(inside, [None, *inside], strict=False) if a != b] == order


def test_clearing_all_gradients_is_the_update_and_head_masks_are_where_they_run(model):
    mask = np.ones((LAYERS, 2))
    mask[1, 0] = 0
    with Recording(model) as recording:
        model.zero_gradients()
        model.loss(IDS, IDS, head_mask=mask)
        model.backward()
    found = counted(recording.timeline(), 0)
    assert found[NONE, "update"] == {"zero_elements": 1}
    for layer in range(LAYERS):
        assert found[layer, "forward"]["head_mask_forward_rows"] > 0
        masked = found[layer, "backward"]
        assert masked["head_mask_forward_rows"] == found[layer, "forward"]["head_mask_forward_rows"]
        assert masked["head_mask_backward_rows"] > 0


def test_afterwards_everything_is_as_before(model, optimizer):
    plain, runtime = model.ops, model.ops.runtime
    with pytest.raises(ValueError, match="context"), Recording(model, optimizer):
        model.loss(np.zeros((1, 65), np.int64), np.zeros((1, 65), np.int64))
    with Recording(model, optimizer):
        assert model.ops is optimizer.ops is not plain
        assert model.ops.runtime is runtime
    assert model.ops is optimizer.ops is plain
    assert runtime.trace is None


def test_a_recording_changes_no_bit(model):
    plain = model.loss(IDS, IDS)
    with Recording(model):
        assert model.loss(IDS, IDS) == plain


def test_numpy_has_no_chunks():
    with pytest.raises(ValueError, match="backend='numba'"):
        Recording(GPT2(CONFIG, seed=0))


def test_notes_by_hand():
    """Records that nobody's call left, and neighbours of both kinds."""
    calls = [
        Call("zero", 0, 2, None, False, 4),  # clears for the next
        Call("linear_backward", 3, 5, 1, False, 4),
        Call("attention_backward", 5, 6, None, False, 4),  # follows its block's linear layer
        Call("adamw_update", 6, 7, None, False, 4),
    ]
    array, names = notes(calls, 8)
    assert names == ("zero", "linear_backward", "attention_backward", "adamw_update")
    assert array["operation"].tolist() == [0, 0, -1, 1, 1, 2, 3, -1]
    assert array["layer"].tolist() == [1, 1, -1, 1, 1, 1, -1, -1]
    assert array["phase"].tolist() == [1, 1, -1, 1, 1, 1, 2, -1]
    assert array["iteration"].tolist() == [4, 4, -1, 4, 4, 4, 4, -1]


def test_overhead_by_hand():
    cost = Overhead(plain=(1.0, 2.0, 1.0, 4.0, 1.0), recorded=(1.1, 2.0, 1.3, 4.4, 1.2))
    np.testing.assert_allclose(cost.ratios, [1.1, 1.0, 1.3, 1.1, 1.2])
    assert cost.median == pytest.approx(0.1)
    # All five above the median: a chance of 1/32, more than the 2.5 % that an end may lose.
    assert cost.interval() == pytest.approx((0.0, 0.3))
    # At most one of five below it: 6/32 = 18.75 %, less than the 20 % here.
    assert cost.interval(0.6) == pytest.approx((0.1, 0.2))


def test_the_interval_holds_the_median_as_often_as_it_says():
    """Ten values, 95 %: between the second and the ninth, which holds it in 97.9 % of all draws."""
    low, high = Overhead((1.0,) * 10, tuple(1 + i / 100 for i in range(10))).interval()
    assert (low, high) == pytest.approx((0.01, 0.08))
    draws = np.random.default_rng(0).normal(1, 0.1, (4000, 10))
    ends = np.array([Overhead((1.0,) * 10, tuple(draw)).interval() for draw in draws])
    held = np.mean((ends[:, 0] <= 0) & (ends[:, 1] >= 0))
    assert held == pytest.approx(1 - 2 * 11 / 1024, abs=0.01)


def test_overhead_measures_in_turns(model):
    made = []

    def step():
        made.append(model.ops)
        model.loss(IDS, IDS)

    plain = model.ops
    recording = Recording(model)
    cost = overhead(step, recording, pairs=4)
    kinds = ["plain" if ops is plain else "recorded" for ops in made]
    assert kinds[1:] == ["plain", "recorded", "recorded", "plain"] * 2
    assert len(cost.plain) == len(cost.recorded) == 4
    assert recording.needed == 0
