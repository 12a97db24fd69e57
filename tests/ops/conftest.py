from __future__ import annotations

from typing import Any

import pytest

from tests.backends import BACKENDS, one_thread, operations

__all__ = ["one_thread"]  # a fixture: pytest finds it here


@pytest.fixture(params=BACKENDS)
def ops(request: pytest.FixtureRequest) -> Any:
    """The operations of one backend."""
    return operations(request.param)
