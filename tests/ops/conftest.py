from __future__ import annotations

from typing import Any

import pytest

from tests.backends import BACKENDS, operations


@pytest.fixture(params=BACKENDS)
def ops(request: pytest.FixtureRequest) -> Any:
    """The operations of one backend."""
    return operations(request.param)
