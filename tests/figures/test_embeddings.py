import numpy as np
import pytest
from matplotlib.colors import to_hex

from gpt2lib.figures import embeddings
from tests.figures.looks import faults, texts

pytestmark = pytest.mark.usefixtures("book_style")


def test_cosine():
    x = np.array([[3.0, 4.0], [8.0, -6.0], [-6.0, -8.0]])
    np.testing.assert_allclose(
        embeddings.cosine(x), [[1, 0, -1], [0, 1, 0], [-1, 0, 1]], atol=1e-12
    )


def test_plane_finds_the_plane_that_the_points_lie_in():
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((20, 2)) * [5, 1]
    turned, _ = np.linalg.qr(rng.standard_normal((8, 8)))
    points, share = embeddings.plane(flat @ turned[:2] + 7)  # turned into 8 dimensions, and moved
    assert share == pytest.approx(1)
    apart = lambda x: np.linalg.norm(x[:, None] - x[None], axis=-1)  # noqa: E731
    np.testing.assert_allclose(apart(points), apart(flat), atol=1e-9)
    assert points[:, 0].std() > points[:, 1].std()


def test_plane_shows_only_a_share_of_what_is_not_flat():
    _, share = embeddings.plane(np.eye(5))
    assert share == pytest.approx(0.5)  # four equal directions, two are shown


def test_word_map_writes_each_word_at_its_point():
    groups = {
        "names": (["Tom", "Mia"], np.array([[0.0, 1.0], [2.0, 3.0]])),
        "verbs": (["run"], np.array([[-4.0, 0.0]])),
    }
    fig = embeddings.word_map(groups)
    (ax,) = fig.axes
    found = {t.get_text(): t.xy for t in ax.texts}
    for words, points in groups.values():
        for word, point in zip(words, points, strict=True):
            np.testing.assert_allclose(found[word], point)
    colors = [to_hex(c.get_facecolor()[0]) for c in ax.collections]
    assert len(set(colors)) == 2
    assert {"names", "verbs"} <= {t.get_text() for t in texts(fig)}
    assert faults(fig) == []


def test_heat_is_the_matrix_between_minus_one_and_one():
    matrix = embeddings.cosine(np.random.default_rng(1).standard_normal((4, 6)))
    fig = embeddings.heat(matrix, label="cosine", axis="word", names=["a", "b", "c", "d"])
    ax, bar = fig.axes
    np.testing.assert_allclose(ax.images[0].get_array(), matrix)
    assert ax.images[0].get_clim() == (-1, 1)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b", "c", "d"]
    assert bar.get_ylabel() == "cosine"
    assert faults(fig) == []


def test_heat_without_names():
    fig = embeddings.heat(np.eye(128), label="cosine", axis="position")
    assert fig.axes[0].get_xlabel() == "position"
    assert faults(fig) == []


def test_first_loss():
    stds, losses = np.array([0.002, 0.02, 0.2, 2.0]), np.array([6.24, 6.25, 9.0, 150.0])
    fig = embeddings.first_loss(stds, losses, np.log(512))
    (ax,) = fig.axes
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.stack([stds, losses], axis=1))
    np.testing.assert_allclose(ax.lines[1].get_ydata(), np.log(512))
    assert "nats" in ax.get_ylabel()
    assert faults(fig) == []
