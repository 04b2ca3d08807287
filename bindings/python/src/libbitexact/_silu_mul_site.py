"""A place that computes silu(gate) * up."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from . import _backend, _craft, capi, chains
from ._codes import Code
from ._site import (
    ANOTHER_MAY,
    DECIDING,
    FIRST_LAYOUT,
    Site,
    device_of,
    is_traced,
    no_match,
    refuse_output,
    same,
    tell,
    unique_name,
    wants_grad,
)
from .numerics import SILU_MUL, silu_mul_candidates, silu_mul_name

Tensor = torch.Tensor


class SiluMulSite(Site):
    """A place that computes silu(gate) * up.

    Args:
        numerics: name of the chain, a key of numerics.SILU_MUL or CLAMPED; None: one of SILU_MUL, found by
            trying against `reference`.
        reference: the eager truth, (gate, up) -> result; None: the named chain as PyTorch operators.
        name: shown in reports and logs, unique among living sites.
        limit: of a chain of CLAMPED.
    """

    operation = "fused_silu_mul"

    def __init__(
        self,
        numerics: Optional[str] = "eager",
        reference: Optional[Callable[[Tensor, Tensor], Tensor]] = None,
        name: Optional[str] = None,
        limit: Optional[float] = None,
    ) -> None:
        if numerics is None and reference is None:
            raise ValueError("numerics is None and there is no reference; accepted: at least one of them")
        names = [numerics] if numerics else list(SILU_MUL)
        candidates = [(n, spec) for n in names for spec in self._specs(n, limit)]
        name = name or unique_name(f"SiluMulSite {numerics or 'by trying'}")
        chain = None if reference else f"silu_mul/{silu_mul_name(numerics or '', limit)}"
        super().__init__(name, candidates, numerics is not None, chain)
        self.numerics = numerics
        self.limit = limit
        self.reference = reference or chains.silu_mul(numerics or "eager", limit)

    @staticmethod
    def _specs(numerics: str, limit: Optional[float] = None) -> list[Any]:
        make = _backend.module.SiluSpec
        fields = silu_mul_candidates(numerics, limit)
        return [make(f.silu, f.compute, f.clamp, f.limit_bits) for f in fields]

    def __call__(self, gate: Tensor, up: Tensor, out: Optional[Tensor] = None) -> Tensor:
        """silu(gate) * up; shapes, dtypes and errors as libbitexact.fused_silu_mul."""
        if torch.compiler.is_compiling():
            if wants_grad(gate, up):
                return self._eager(gate, up, out)
            if out is None:
                return torch.ops.libbitexact.silu_mul(gate, up, self.name)
            torch.ops.libbitexact.silu_mul_out(gate, up, out, self.name)
            return out
        result = self._native.silu_mul(self.candidates[self._chosen][1], gate, up, out)
        return result if type(result) is not int else self._slow(result, gate, up, out)

    def _eager(self, gate: Tensor, up: Tensor, out: Optional[Tensor]) -> Tensor:
        result = self.reference(gate, up)
        return result if out is None else out.copy_(result)

    def _slow(self, code: int, gate: Tensor, up: Tensor, out: Optional[Tensor]) -> Tensor:
        if not isinstance(gate, Tensor):
            from . import arrays

            numerics = self.numerics or "eager"
            return arrays.fused_silu_mul(gate, up, out=out, numerics=numerics, limit=self.limit)
        eager: Optional[Tensor] = None
        for _ in range(2 * len(self.candidates) + 4):
            if code == Code.NO_LAYOUT and eager is None:
                with torch.no_grad():
                    eager = self.reference(gate, up)
                self._learn(gate, up, eager)
                self._eager_because(FIRST_LAYOUT)
            elif code == Code.NO_CONTEXT and self._open(device_of(gate)):
                pass
            elif code == capi.STATUS_FORKED:
                self._forget_contexts()
            elif code in ANOTHER_MAY and self._next_candidate(gate, up, out):
                pass
            else:
                break
            result = self._native.silu_mul(self.candidates[self._chosen][1], gate, up, out)
            if type(result) is not int:
                return result if eager is None else eager
            code = result
        if code == capi.STATUS_UNVERIFIED:
            if (device_of(gate), gate.dtype) not in self._closed:
                return self._decide(gate, up, out, eager)
            code = capi.STATUS_DECLINED
        if code in (Code.HAS_MODE, Code.NOT_TORCH) and is_traced((gate, up, out)):
            if out is None:
                return torch.ops.libbitexact.silu_mul(gate, up, self.name)
            torch.ops.libbitexact.silu_mul_out(gate, up, out, self.name)
            return out
        refuse_output(code, out)
        tell(self, code, (gate, up, out))
        return self._eager(gate, up, out) if eager is None else eager

    def _learn(self, gate: Tensor, up: Tensor, result: Tensor) -> None:
        """Remembers how eager's result lies, for the calls to come."""
        if not (isinstance(result, Tensor) and same(result, gate)):
            self._refuse_result("gate", gate, result)
            return
        for _, spec in self.candidates:
            self._native.learn_silu_mul(spec, gate, up, result)

    def _next_candidate(self, gate: Tensor, up: Tensor, out: Optional[Tensor]) -> bool:
        """Moves to a candidate whose gate is open or undecided; False if all are closed."""
        for index, (_, spec) in enumerate(self.candidates):
            if index == self._chosen:
                continue
            probe = self._native.silu_mul(spec, gate, up, out)
            if type(probe) is not int or probe == capi.STATUS_UNVERIFIED:
                self._chosen = index
                return True
        return False

    def _decide(self, gate: Tensor, up: Tensor, out: Optional[Tensor], eager: Optional[Tensor]) -> Tensor:
        """First use of a kernel: eager's result is returned, and decides."""
        if eager is None:
            self._eager_because(DECIDING)
        with torch.no_grad():
            result = self.reference(gate, up) if eager is None else eager
            self._let_first_decide(lambda: self._verify(gate, up, result if out is None else out, result))
        return result if out is None else out.copy_(result)

    def _verify(self, gate: Tensor, up: Tensor, out: Tensor, result: Tensor) -> None:
        if not (isinstance(result, Tensor) and same(result, gate)):
            self._refuse_result("gate", gate, result)
            return
        device = device_of(gate)
        crafted = _craft.silu_mul(gate, self.limit or 1.0)
        expected = self.reference(*crafted)

        def holds(spec: Any) -> bool:
            return self._trial(
                device,
                lambda native: native.silu_mul_verify(spec, *crafted, torch.empty_like(expected), expected),
            )

        index = self._first_that_holds((gate.dtype, device), holds)
        if index is None:
            # The gate of the first candidate tells the story: both bit patterns and where.
            spec = self.candidates[0][1]
            self._native.silu_mul_verify(spec, *crafted, torch.empty_like(expected), expected)
            self._closed.add((device, gate.dtype))
            matching = [n for n in SILU_MUL if any(holds(spec) for spec in self._specs(n))]
            self._note(no_match(self.numerics, matching))
            return
        status, _ = self._native.silu_mul_verify(self.candidates[index][1], gate, up, out, result)
        self._chosen = index
        if status != capi.STATUS_OK:
            self._note(f"could not be checked: {self._explain_status(status)}")
