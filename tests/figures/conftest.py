"""The book's style round every test of a figure, and no figure left open."""

from __future__ import annotations

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from gpt2lib import figures


@pytest.fixture
def book_style():
    with mpl.rc_context():
        figures.use_style()
        yield
        plt.close("all")
