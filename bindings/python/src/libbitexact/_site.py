"""Sites: one place in a program that calls one operation, with its own truth, gate and story.

A site tries to run fused. Whatever stands in the way (gradients, a subclass, an unproven kernel, an
exception) leads to the eager chain, and is counted under its reason.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from collections import Counter
from typing import Any, Callable, Iterator, Optional, Sequence

import torch

from . import _backend, capi
from ._codes import TEXTS, Code

Tensor = torch.Tensor
logger = logging.getLogger("libbitexact")


DECIDING = "deciding"
# Statuses of one candidate after which another one may still serve.
ANOTHER_MAY = (capi.STATUS_DECLINED, capi.STATUS_UNSUPPORTED, capi.STATUS_INVALID_VALUE)
FIRST_LAYOUT = "first call with such strides"


class DeclinedError(RuntimeError):
    """Under BITEXACT_GATE=strict: a call could not be served fused because its gate is closed."""


# ----------------------------------------------------------------------------------- registry --

_sites: "weakref.WeakValueDictionary[str, Site]" = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()
# Names that say which chain a site has; only sites made for that chain may have them.
RESERVED = ("silu_mul/", "rope/")


def all_sites() -> list["Site"]:
    """Every living site, oldest first."""
    with _registry_lock:
        return sorted(_sites.values(), key=lambda site: site.serial)


def unique_name(stem: str) -> str:
    """The stem, or the stem with the first number that no living site has."""
    with _registry_lock:
        if stem not in _sites:
            return stem
        return next(name for n in itertools.count(2) if (name := f"{stem}#{n}") not in _sites)


# --------------------------------------------------------------------------------------- base --


class Site:
    """Base of SiluMulSite and RopeSite."""

    operation: str
    _serials = itertools.count()

    def __init__(self, name: str, candidates: Sequence[Any], named: bool, chain: Optional[str]) -> None:
        if name.startswith(RESERVED) and name != chain:
            raise ValueError(f"the name {name!r} is kept for PyTorch's own operators; choose another one")
        self.name = name
        self.serial = next(self._serials)
        self.candidates = tuple(candidates)
        self.named = named  # a chain was named, rather than found by trying
        self.counts: Counter[str] = Counter()
        self.notes: list[str] = []
        self._native = _backend.module.Site()
        self._contexts: dict[int, capi.Context] = {}
        self._chosen = 0
        self._crafted: dict[Any, bool] = {}
        self._closed: set[Any] = set()  # (device, dtypes) for which no candidate gives eager's bits
        self._deciding, self._opening = threading.Lock(), threading.Lock()
        with _registry_lock:
            if name in _sites:
                raise ValueError(f"there is a site named {name!r} already")
            _sites[name] = self

    # -------------------------------------------------------------------------- contexts --

    def _log(self, level: int, text: str) -> None:
        logger.log(logging.WARNING if level <= capi.LOG_WARNING else logging.INFO, "%s: %s", self.name, text)

    def _open(self, device: int) -> bool:
        """Makes the context of a device; False if there can be none."""
        if device >= 0 and torch.cuda.is_current_stream_capturing():
            return device in self._contexts
        with self._opening:  # a second context would take the first one's place, and free it under a running call
            if device in self._contexts:
                return True
            try:
                context = capi.Context(device, reference_mode=capi.REFERENCE_CALLER, log=self._log)
            except capi.Error as error:
                self._note(f"no context on {'the CPU' if device < 0 else f'cuda:{device}'}: {error}")
                return False
            self._native.set_context(device, context.pointer)
            self._contexts[device] = context
        return True

    def _forget_contexts(self) -> None:
        """After a fork: the child needs its own."""
        for device in self._contexts:
            self._native.set_context(device, 0)
        self._contexts = {}
        self._opening = threading.Lock()  # another thread of the parent may have held it

    def reset(self) -> None:
        """Forgets verdicts and counts. Not while another thread uses the site."""
        for context in self._contexts.values():
            context.reset()
        self.counts.clear()
        self.notes.clear()
        self._crafted.clear()
        self._closed.clear()
        self._chosen = 0

    @staticmethod
    def policy() -> int:
        """POLICY value in force, as the library reads it: a device may be capturing, and is not asked."""
        name = os.environ.get("BITEXACT_GATE") or "verify"
        return capi.POLICY_NAMES.index(name) if name in capi.POLICY_NAMES else capi.POLICY_VERIFY

    # -------------------------------------------------------------------------- decision --

    def _let_first_decide(self, verify: Callable[[], None]) -> None:
        """Runs the check unless another thread does."""
        if not self._deciding.acquire(blocking=False):
            return
        try:
            verify()
        except Exception as error:  # a defect of the fast path must not become the caller's
            self._note(f"the check raised {type(error).__name__}: {error}")
            logger.warning("%s: the check raised %r; running eager", self.name, error)
        finally:
            self._deciding.release()

    def _first_that_holds(self, key: Any, holds: Callable[[Any], bool]) -> Optional[int]:
        """The candidate, beginning with the chosen one, that holds on crafted tensors; each is tried once."""
        for index in sorted(range(len(self.candidates)), key=lambda i: i != self._chosen):
            if (index, key) not in self._crafted:
                self._crafted[index, key] = holds(self.candidates[index][1])
            if self._crafted[index, key]:
                return index
        return None

    # ----------------------------------------------------------------------------- story --

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _eager_because(self, reason: str) -> None:
        self.counts[f"eager: {reason}"] += 1

    @property
    def last_reason(self) -> Optional[str]:
        """Why calls ran eager: the reason counted last; None if none did."""
        reasons = [name for name in self.counts if name.startswith("eager: ")]
        return reasons[-1][len("eager: ") :] if reasons else None

    def verdicts(self) -> Iterator[dict[str, Any]]:
        """The gate's report of every kernel that this site met, with the device."""
        for device, context in list(self._contexts.items()):
            for report in context.used_reports():
                yield {"device": "cpu" if device < 0 else f"cuda:{device}", **report.to_dict()}

    def describe_candidate(self, index: int) -> str:
        return str(self.candidates[index][0])

    # ---------------------------------------------------------------------------- deciding --

    def _refuse_result(self, name: str, own: Tensor, result: Any) -> None:
        told = (
            f"{result.dtype} {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
        )
        self._note(
            f"the chain gives {told} for {name} of {own.dtype} {tuple(own.shape)}: nothing here computes that"
        )

    def _trial(self, device: int, check: Callable[[Any], tuple[int, int]]) -> bool:
        """Does a comparison hold in a context of its own, so that no verdict stays?"""
        try:
            with capi.Context(device, reference_mode=capi.REFERENCE_CALLER) as context:
                native = _backend.module.Site()
                native.set_context(device, context.pointer)
                status, verdict = check(native)
        except capi.Error:
            return False
        return status == capi.STATUS_OK and verdict == capi.STATE_ACCEPTED

    def _explain_status(self, status: int) -> str:
        if status < 0:
            return TEXTS[status]
        return f"{capi.status_string(status)}: {capi.last_error()}" if status else "ok"


def device_of(tensor: Tensor) -> int:
    return capi.DEVICE_HOST if tensor.device.type == "cpu" else tensor.device.index


def is_traced(tensors: Sequence[Optional[Tensor]]) -> bool:
    """Should the dispatcher see the call as one operator (a mode, fake tensors, a tracer)?"""
    kinds = {type(t) for t in tensors if t is not None}
    known = {torch.Tensor, torch.nn.Parameter}
    traced = {"FakeTensor", "FunctionalTensor"}
    if not all(kind in known or kind.__name__ in traced for kind in kinds):
        return False
    if (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    ):
        return False
    return any(kind.__name__ in traced for kind in kinds) or bool(
        torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None
    )


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device


def wants_grad(*tensors: Optional[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


# --------------------------------------------------------------------------------- in common --


def no_match(wanted: Optional[str], matching: list[str]) -> str:
    would = ", ".join(matching) if matching else "no named chain"
    return f"declined: the eager result is not {wanted or 'any chain that was tried'}; it matches {would}"


def refuse_output(code: int, out: Optional[Tensor]) -> None:
    """An output that cannot be written is the caller's mistake; eager would hide it."""
    if out is not None and code in (capi.STATUS_OVERLAP, capi.STATUS_INVALID_STRIDE):
        raise ValueError(capi.last_error())


def tell(site: Site, code: int, tensors: Sequence[Any]) -> None:
    """Counts why a call runs eager; raises under the strict policy if its gate is closed."""
    if code == Code.NOT_TORCH:
        kinds = {type(t).__name__ for t in tensors if t is not None} - {"Tensor", "Parameter"}
        site._eager_because(f"{TEXTS[code]} ({', '.join(sorted(kinds)) or 'unknown'})")
    elif code in (Code.NO_CONTEXT, Code.NO_LAYOUT):
        site._eager_because(site.notes[-1] if site.notes else TEXTS[code])
    elif code < 0:
        site._eager_because(TEXTS[code])
    elif code == capi.STATUS_DECLINED:
        policy = site.policy()
        site._eager_because("declined" if policy != capi.POLICY_REFERENCE else "policy reference")
        if policy == capi.POLICY_STRICT:
            raise DeclinedError(f"{site.name}: declined. " + " ".join(site.notes))
    elif code == capi.STATUS_CAPTURING:
        site._eager_because("undecided during a CUDA graph capture")
    else:
        site._eager_because(site._explain_status(code))
