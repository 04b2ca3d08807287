"""A place that rotates q, and k if given."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Optional, Sequence

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
from .numerics import PAIRINGS, ROPE, Rope

Tensor = torch.Tensor


class RopeSite(Site):
    """A place that rotates q, and k if given.

    Args:
        rope: what the rotation is; a sequence of them is tried in order against `reference`.
        reference: the eager truth, (q, k, cos, sin, positions) -> result, or a pair of results where k is
            given;
            None: the named chain as PyTorch operators.
        name: shown in reports and logs, unique among living sites.
    """

    operation = "fused_rope"

    def __init__(
        self,
        rope: Rope | Sequence[Rope] = Rope(),
        reference: Optional[Callable[..., Any]] = None,
        name: Optional[str] = None,
    ) -> None:
        ropes = [rope] if isinstance(rope, Rope) else list(rope)
        if len(ropes) != 1 and reference is None:
            raise ValueError(
                "several rotations and no reference; accepted: one, or a reference to try them against"
            )
        super().__init__(
            name or unique_name(f"RopeSite {ropes[0]}"),
            [(how, self._spec(how, fields)) for how in ropes for fields in how.candidates()],
            len(ropes) == 1,
            None if reference else f"rope/{ropes[0]}",
        )
        self.rope = ropes[0]
        self.reference = reference or self._chain

    @staticmethod
    def _spec(how: Rope, fields: Any) -> Any:
        flags = fields.flags | (capi.ROPE_INVERSE if how.inverse else 0)
        pairings = PAIRINGS[how.pairing], PAIRINGS[how.written]
        return _backend.module.RopeSpec(
            *pairings, fields.combine, fields.compute, flags, how.rotary_dim, how.heads_first, how.first_half
        )

    def _chain(
        self, q: Tensor, k: Optional[Tensor], cos: Tensor, sin: Optional[Tensor], positions: Optional[Tensor]
    ) -> Any:
        rotated = chains.rope(q, cos, sin, positions, self.rope)
        return rotated if k is None else (rotated, chains.rope(k, cos, sin, positions, self.rope))

    def __call__(
        self,
        q: Tensor,
        k: Optional[Tensor],
        cos: Tensor,
        sin: Optional[Tensor] = None,
        positions: Optional[Tensor] = None,
        q_out: Optional[Tensor] = None,
        k_out: Optional[Tensor] = None,
    ) -> Any:
        """The rotated q, or the pair (q, k); shapes, dtypes and errors as libbitexact.fused_rope."""
        if torch.compiler.is_compiling():
            if wants_grad(q, k, cos, sin):
                return self._eager(q, k, cos, sin, positions, q_out, k_out)
            return self._operator(q, k, cos, sin, positions, q_out, k_out)
        spec = self.candidates[self._chosen][1]
        result = self._native.rope(spec, q, k, cos, sin, positions, q_out, k_out)
        if type(result) is not int:
            return result
        return self._slow(result, q, k, cos, sin, positions, q_out, k_out)

    def _operator(self, q: Any, k: Any, cos: Any, sin: Any, positions: Any, q_out: Any, k_out: Any) -> Any:
        ops = torch.ops.libbitexact
        if q_out is None and k_out is None:
            if k is None:
                return ops.rope(q, cos, sin, positions, self.name)
            return ops.rope_pair(q, k, cos, sin, positions, self.name)
        if k is None:
            ops.rope_out(q, cos, sin, positions, q_out, self.name)
            return q_out
        q_result = q_out if q_out is not None else torch.empty_like(q)
        k_result = k_out if k_out is not None else torch.empty_like(k)
        ops.rope_pair_out(q, k, cos, sin, positions, q_result, k_result, self.name)
        return q_result, k_result

    def _eager(self, q: Any, k: Any, cos: Any, sin: Any, positions: Any, q_out: Any, k_out: Any) -> Any:
        return self._deliver(self.reference(q, k, cos, sin, positions), k, q_out, k_out)

    @staticmethod
    def _deliver(result: Any, k: Any, q_out: Any, k_out: Any) -> Any:
        if k is None:
            return result if q_out is None else q_out.copy_(result)
        q_result, k_result = result
        return (
            q_result if q_out is None else q_out.copy_(q_result),
            k_result if k_out is None else k_out.copy_(k_result),
        )

    def _slow(self, code: int, *call: Any) -> Any:
        q, k, cos, sin, positions, q_out, k_out = call
        if not isinstance(q, Tensor):
            from . import arrays

            return arrays.rope(self.rope, *call)
        eager: Any = None
        for _ in range(2 * len(self.candidates) + 4):
            if code == Code.NO_LAYOUT and eager is None:
                with torch.no_grad():
                    eager = self.reference(q, k, cos, sin, positions)
                self._learn(call, eager)
                self._eager_because(FIRST_LAYOUT)
            elif code == Code.NO_CONTEXT and self._open(device_of(q)):
                pass
            elif code == capi.STATUS_FORKED:
                self._forget_contexts()
            elif code in ANOTHER_MAY and self._next_candidate(*call):
                pass
            else:
                break
            result = self._native.rope(self.candidates[self._chosen][1], *call)
            if type(result) is not int:
                return result if eager is None else self._deliver(eager, k, q_out, k_out)
            code = result
        if code == capi.STATUS_UNVERIFIED:
            if (device_of(q), q.dtype, cos.dtype) not in self._closed:
                return self._decide(call, eager)
            code = capi.STATUS_DECLINED
        if code in (Code.HAS_MODE, Code.NOT_TORCH) and is_traced(call):
            return self._operator(*call)
        refuse_output(code, q_out if q_out is not None else k_out)
        tell(self, code, call)
        return self._eager(*call) if eager is None else self._deliver(eager, k, q_out, k_out)

    def _learn(self, call: Sequence[Any], result: Any) -> None:
        """Remembers how eager's results lie, for the calls to come."""
        q_result, k_result = (result, None) if call[1] is None else result
        if not self._fits(call, q_result, k_result):
            return
        for _, spec in self.candidates:
            self._native.learn_rope(spec, *call[:5], q_result, k_result)

    def _fits(self, call: Sequence[Any], q_result: Tensor, k_result: Optional[Tensor]) -> bool:
        for name, own, result in (("q", call[0], q_result), ("k", call[1], k_result)):
            if own is not None and not (isinstance(result, Tensor) and same(result, own)):
                self._refuse_result(name, own, result)
                return False
        return True

    def _next_candidate(self, *call: Any) -> bool:
        """Moves to a candidate whose gate is open or undecided; False if all are closed."""
        q, k, q_out, k_out = call[0], call[1], call[5], call[6]
        in_place = q_out is q or (k is not None and k_out is k)
        for index, (_, spec) in enumerate(self.candidates):
            if index == self._chosen:
                continue
            outputs = (torch.empty_like(q), torch.empty_like(k) if k is not None else None)
            probe = self._native.rope(spec, *call[:5], *(outputs if in_place else call[5:]))
            if type(probe) is not int or probe == capi.STATUS_UNVERIFIED:
                self._chosen = index
                return True
        return False

    def _decide(self, call: Sequence[Any], eager: Any) -> Any:
        """First use of a kernel: eager's result is returned, and decides."""
        q, k, cos, sin, positions, q_out, k_out = call
        if eager is None:
            self._eager_because(DECIDING)
        with torch.no_grad():
            result = self.reference(q, k, cos, sin, positions) if eager is None else eager
            self._let_first_decide(lambda: self._verify(call, result))
        return self._deliver(result, k, q_out, k_out)

    def _verify(self, call: Sequence[Any], result: Any) -> None:
        q, k, cos, sin, positions, q_out, k_out = call
        q_result, k_result = (result, None) if k is None else result
        if not self._fits(call, q_result, k_result):
            return
        device = device_of(q)
        crafted = _craft.rope(q, k, cos, sin, positions, self.rope.heads_first)
        expected = self.reference(*crafted)
        q_expected, k_expected = (expected, None) if k is None else expected
        scratch = [None if e is None else torch.empty_like(e) for e in (q_expected, k_expected)]

        def check(native: Any, spec: Any) -> tuple[int, int]:
            return native.rope_verify(spec, *crafted, *scratch, q_expected, k_expected)

        def holds(spec: Any) -> bool:
            return self._trial(device, lambda native: check(native, spec))

        shapes = tuple(q.shape[-1:]), cos.shape[-1], k is None, sin is None
        index = self._first_that_holds((q.dtype, cos.dtype, device, shapes), holds)
        outputs = (
            q_result if q_out is None else q_out,
            k_result if k_out is None else k_out,
        )
        if index is None:
            # The gate of the first candidate tells the story: both bit patterns and where.
            spec = self.candidates[0][1]
            check(self._native, spec)
            self._closed.add((device, q.dtype, cos.dtype))
            self._note(no_match(self._wanted(), self._matching(holds)))
            return
        spec = self.candidates[index][1]
        status, _ = self._native.rope_verify(spec, q, k, cos, sin, positions, *outputs, q_result, k_result)
        self._chosen = index
        if status != capi.STATUS_OK:
            self._note(f"could not be checked: {self._explain_status(status)}")

    def _wanted(self) -> str:
        return str(self.rope) if self.named else "any chain that was tried"

    def _matching(self, holds: Callable[[Any], bool]) -> list[str]:
        """Every named chain, in every pairing, that gives what the reference gave."""
        found = []
        for name, pairing, inverse in itertools.product(ROPE, PAIRINGS, (False, True)):
            how = Rope(name, pairing, None, self.rope.rotary_dim, self.rope.layout, inverse)
            if any(holds(self._spec(how, fields)) for fields in how.candidates()):
                found.append(f"{name} ({pairing}{', inverse' if inverse else ''})")
        return found
