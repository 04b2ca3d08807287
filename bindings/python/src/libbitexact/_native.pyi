from typing import Any

def set_api(address: int) -> None: ...
def register_torch(
    tensor: type,
    parameter: type,
    capsule: object,
    functions: dict[str, Any],
    dtypes: dict[Any, tuple[int, int]],
) -> None: ...
def uses_exchange_api() -> bool: ...

class RopeSpec:
    def __init__(
        self,
        pairing_in: int,
        pairing_out: int,
        combine: int,
        compute: int,
        flags: int,
        rotary_dim: int,
        heads_first: bool,
        first_half: bool,
    ) -> None: ...

class SiluSpec:
    def __init__(self, silu: int, compute: int, clamp: int, limit_bits: int) -> None: ...

class Site:
    def __init__(self) -> None: ...
    def set_context(self, device: int, context: int) -> None: ...
    def silu_mul(self, spec: SiluSpec, gate: Any, up: Any, out: Any) -> Any: ...
    def silu_mul_verify(
        self, spec: SiluSpec, gate: Any, up: Any, out: Any, reference: Any
    ) -> tuple[int, int]: ...
    def rope(
        self, spec: RopeSpec, q: Any, k: Any, cos: Any, sin: Any, positions: Any, q_out: Any, k_out: Any
    ) -> Any: ...
    def rope_verify(
        self,
        spec: RopeSpec,
        q: Any,
        k: Any,
        cos: Any,
        sin: Any,
        positions: Any,
        q_out: Any,
        k_out: Any,
        q_expected: Any,
        k_expected: Any,
    ) -> tuple[int, int]: ...
    def learn_silu_mul(self, spec: SiluSpec, gate: Any, up: Any, result: Any) -> int: ...
    def learn_rope(
        self,
        spec: RopeSpec,
        q: Any,
        k: Any,
        cos: Any,
        sin: Any,
        positions: Any,
        q_result: Any,
        k_result: Any,
    ) -> int: ...
