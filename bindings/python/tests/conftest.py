from __future__ import annotations

import os

import pytest

os.environ.pop("BITEXACT_GATE", None)  # a policy of the user's would change what tests see


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        import torch

        missing = None if torch.cuda.is_available() else "PyTorch finds no CUDA device here"
    except ImportError:
        missing = "PyTorch is not installed"
    if missing:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param
