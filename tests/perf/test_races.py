import pytest

from gpt2lib.perf.races import orders, play


def test_moves_by_hand():
    moves = play([0, 1, 1, 0, 0, 1], [2.0, 3.0], start=10.0)
    assert [(m.thread, m.what, m.register, m.memory) for m in moves] == [
        (0, "load", 10, 10),
        (1, "load", 10, 10),
        (1, "add", 13, 10),
        (0, "add", 12, 10),
        (0, "store", 12, 12),
        (1, "store", 13, 13),
    ]


def test_only_two_of_twenty_orders_are_right():
    """Both gradients arrive where one thread is done before the other begins, and nowhere else."""
    assert len(set(orders())) == 20
    right = [order for order in orders() if play(order, [2.0, 3.0])[-1].memory == 5.0]
    assert right == [(0, 0, 0, 1, 1, 1), (1, 1, 1, 0, 0, 0)]
    lost = {play(order, [2.0, 3.0])[-1].memory for order in orders()} - {5.0}
    assert lost == {2.0, 3.0}


@pytest.mark.parametrize("order", [[0, 0, 0], [0, 0, 0, 0, 1, 1], [0, 1, 2, 0, 1, 2]])
def test_each_thread_has_three_moves(order):
    with pytest.raises(ValueError, match="moves"):
        play(order, [2.0, 3.0])
