import matplotlib.pyplot as plt
import numpy as np

from gpt2lib.figures import cover


def attention(T, targets):
    """Return (1, 1, T, T) probabilities in which position t attends to targets[t] alone."""
    p = np.zeros((1, 1, T, T))
    p[0, 0, np.arange(T), targets] = 1
    return p


def test_the_strongest_leave_out_the_first_position_and_itself():
    p = attention(4, [0, 0, 2, 1])  # 1 -> the first, 2 -> itself, 3 -> 1
    assert cover.strongest(p) == [(0, 0, 3, 1, 1.0)]


def test_a_weak_probability_gets_no_arc():
    p = attention(3, [0, 1, 1]) * 0.2
    assert cover.strongest(p, least=0.3) == []
    assert len(cover.strongest(p, least=0.1)) == 1


def test_one_arc_for_each_and_every_token_is_named():
    fig = cover.arcs(["a", "b", "c", "d"], attention(4, [0, 1, 1, 2]))
    (ax,) = fig.axes
    assert len(ax.patches) == 2
    assert [text.get_text() for text in ax.texts] == ["a", "b", "c", "d"]
    start, stop = (patch.get_path().vertices[[3, 0], 0] for patch in ax.patches)
    assert {tuple(start), tuple(stop)} == {(2.0, 1.0), (3.0, 2.0)}
    plt.close(fig)
