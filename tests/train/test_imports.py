from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    ["capri", "capri.data", "capri.data.cifar", "capri.bilevel", "capri.cli", "capri.train.config"],
)
def test_light_modules_leave_torch_alone(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'lightning' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_load_on_first_use():
    import capri.bilevel
    import capri.models
    import capri.train

    for package in (capri.bilevel, capri.train, capri.models):
        for name in package.__all__:
            assert getattr(package, name).__name__ == name
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            package.nothing  # noqa: B018
