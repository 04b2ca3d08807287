"""Import, fork, reload, exit, command line: what concerns the process."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import threading
import time

import pytest
import torch

import libbitexact
from helpers import silu_site


def python(code: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_import_brings_in_no_framework() -> None:
    loaded = python(
        "import sys, libbitexact; print([m for m in ('torch', 'numpy', 'jax') if m in sys.modules])"
    )
    assert loaded.strip() == "[]"


OPENS_NO_GPU = """
import os, libbitexact
libbitexact.capi.Context().close()
descriptors = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
opened = {os.readlink(path) for path in descriptors if os.path.lexists(path)}
assert not any("nvidia" in path for path in opened), opened
assert "libcuda" not in open("/proc/self/maps").read()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs /proc")
def test_import_opens_no_gpu() -> None:
    python(OPENS_NO_GPU)


FORK = """
import os, sys, torch, libbitexact
from libbitexact import SiluMulSite
gate = torch.randn(8, 64).bfloat16()
expected = torch.nn.functional.silu(gate) * gate
site = SiluMulSite(name="s")
for _ in range(2):
    site(gate, gate)
child = os.fork()
if child == 0:
    for _ in range(3):
        assert torch.equal(site(gate, gate), expected)
    assert sum(v["fused_calls"] for v in site.verdicts()) >= 2, (site.counts, site.notes)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert torch.equal(site(gate, gate), expected)
"""


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@needs_fork
def test_a_forked_child_goes_on() -> None:
    python(FORK)


@needs_fork
def test_a_context_that_says_it_was_forked_is_made_anew() -> None:
    """Host contexts may live on in a child, CUDA contexts may not: the answer is planted."""
    gate = torch.randn(8, 64).bfloat16()
    site = silu_site()
    for _ in range(2):
        site(gate, gate)
    before = site._contexts[-1]
    result = site._slow(libbitexact.capi.STATUS_FORKED, gate, gate, None)
    assert site._contexts[-1] is not before
    assert torch.equal(result, torch.nn.functional.silu(gate) * gate)


@needs_fork
@pytest.mark.gpu
def test_cuda_in_a_forked_child_after_import() -> None:
    python(
        "import os, libbitexact, torch\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    x = torch.ones(4, 8, device='cuda').half()\n"
        "    for _ in range(2): y = libbitexact.fused_silu_mul(x, x)\n"
        "    assert torch.equal(y, torch.nn.functional.silu(x) * x)\n"
        "    os._exit(0)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )


def test_reload_and_exit() -> None:
    python(
        "import importlib, torch, libbitexact\n"
        "x = torch.ones(4, 4).half()\n"
        "libbitexact.fused_silu_mul(x, x); libbitexact.fused_silu_mul(x, x)\n"
        "importlib.reload(libbitexact)\n"
        "libbitexact.fused_silu_mul(x, x)\n"
        "import threading; threading.Thread(target=libbitexact.fused_silu_mul, args=(x, x)).start()\n"
        "raise SystemExit(0)"
    )


WITHOUT_TORCH = """
import importlib.abc, sys

class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name == "torch":
            raise ImportError(name)

sys.meta_path.insert(0, NoTorch())
import libbitexact
assert libbitexact.report()["sites"] == []
libbitexact.capi.Context().close()
try:
    import numpy
except ImportError:
    pass
else:
    x = numpy.ones((2, 8), dtype=numpy.float16)
    assert libbitexact.fused_silu_mul(x, x).view(numpy.uint16)[0, 0] == 0x39D9
"""


def test_works_without_torch() -> None:
    python(WITHOUT_TORCH)


def test_a_missing_library_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import libbitexact"],
        env={**os.environ, "BITEXACT_LIBRARY": "/nowhere/libbitexact.so"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and "BITEXACT_LIBRARY" in done.stderr


def test_the_gil_is_free_while_the_library_works() -> None:
    """A heartbeat goes on within one long call."""
    gate = torch.randn(8192, 8192).bfloat16()
    out = torch.empty_like(gate)
    site = silu_site()
    for _ in range(2):
        site(gate, gate, out)
    beats, stop = [], threading.Event()

    def beat() -> None:
        while not stop.is_set():
            beats.append(time.perf_counter())
            time.sleep(0.0005)

    thread = threading.Thread(target=beat)
    thread.start()
    time.sleep(0.01)
    start = time.perf_counter()
    site(gate, gate, out)
    end = time.perf_counter()
    stop.set()
    thread.join()
    # The first may come before the call gets to the library, the last one after.
    within = [b for b in beats if start < b < end]
    assert len(within) >= 4, f"{len(within)} beats in {(end - start) * 1e3:.1f} ms"


def test_typed_and_stubbed() -> None:
    package = importlib.util.find_spec("libbitexact").submodule_search_locations[0]
    assert os.path.exists(os.path.join(package, "py.typed"))
    assert os.path.exists(os.path.join(package, "_native.pyi"))


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL")
def test_free_threaded() -> None:
    assert not sys._is_gil_enabled()


@pytest.mark.parametrize("command", ["info", "doctor", "bench"])
def test_command_line(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "libbitexact", command, "--json"],
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["environment"]["libbitexact"] == libbitexact.version()
    assert os.path.expanduser("~") not in done.stdout and os.uname().nodename not in done.stdout
    if command == "doctor":
        assert told["verdict"] == "ok"


@pytest.mark.parametrize(
    "options, status, verdict",
    [
        (["--device", "cpu", "--quick", "--kernel", "fused_silu_mul bfloat16 aten scalar"], 1, "not a certificate"),
        (["--device", "cpu", "--quick", "--kernel", "no such kernel"], 1, "not a certificate"),
        (["--device", "cpu", "--kernel", "fused_silu_mul float32"], 1, "not a certificate"),
        (["--device", "gpu"], 2, "accepted: cpu, or cuda: and a number"),
    ],
)
def test_certify_from_the_command_line_never_claims_more(options: list[str], status: int, verdict: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "libbitexact", "certify", *options], env=os.environ, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    assert verdict in done.stdout + done.stderr
