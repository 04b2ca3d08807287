"""patch(), unpatch(), and the handle that says what they did."""

from __future__ import annotations

import copy
import threading
import types
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Optional

from torch import nn

from .._operators import SiluMulSite
from .._site import Site, unique_name
from . import _adapters
from ._rewrite import ROTATIONS, Left, Rewriter, is_sigmoid, mentions, rewrite

_lock = threading.RLock()
_patches: "weakref.WeakKeyDictionary[nn.Module, Patch]" = weakref.WeakKeyDictionary()

# How models name what they multiply with.
_ACTIVATIONS = {"silu", "act_fn", "act", "activation_fn", "activation", "nonlinearity", "gate_fn", "sigmoid"}

# Classes whose methods are machinery, not arithmetic.
_MACHINERY = (
    "torch.",
    "transformers.modeling_utils",
    "diffusers.models.modeling_utils",
    "diffusers.configuration_utils",
)


@dataclass(frozen=True)
class Mount:
    """One replaced expression: where (module path and method), which operation, the source it replaced."""

    path: str
    operation: str
    source: str


class Patch:
    """What patch() did to one model. A context manager that undoes it; str() lists everything.

    Attributes:
        mounted: the replaced expressions.
        left: (path, reason) of what looked like a candidate and stayed.
        sites: the gates: one for each operation and function of the model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.mounted: list[Mount] = []
        self.left: list[tuple[str, str]] = []
        self.sites: list[Site] = []
        self._model = weakref.ref(model)
        self._undo: list[Callable[[], None]] = []

    def undo(self) -> None:
        """Gives every instance its own methods and processors back. Twice is harmless."""
        with _lock:
            for undo in reversed(self._undo):
                undo()
            self._undo.clear()
            model = self._model()
            if model is not None and _patches.get(model) is self:
                del _patches[model]

    @property
    def active(self) -> bool:
        return bool(self._undo)

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __str__(self) -> str:
        groups: dict[tuple[str, str], list[str]] = {}
        for mount in self.mounted:
            groups.setdefault((mount.operation, mount.source), []).append(mount.path)
        lines = [
            f"{len(paths):4} x {op}: {source}  ({paths[0]}...)" for (op, source), paths in groups.items()
        ]
        reasons: dict[str, list[str]] = {}
        for path, reason in self.left:
            reasons.setdefault(reason, []).append(path)
        lines += [f"{len(paths):4} x left: {reason}  ({paths[0]}...)" for reason, paths in reasons.items()]
        return "\n".join(lines) or "nothing found to mount"


class _Mounter:
    def __init__(self, model: nn.Module, rope: bool, silu_mul: bool) -> None:
        self.patch = Patch(model)
        self.rope, self.silu_mul = rope, silu_mul
        self.owner = unique_name(type(model).__name__)
        self.rope_names = _adapters.known_names() if rope else set()
        self.words = self.rope_names | (ROTATIONS if rope else set()) | (_ACTIVATIONS if silu_mul else set())
        self._silu_sites: dict[Any, SiluMulSite] = {}
        self._adapters: dict[Any, Optional[_adapters.Adapter]] = {}
        self._functions: dict[Any, Any] = {}

    # ------------------------------------------------------------------------ sites --

    def _silu_site(self, activation: Any) -> SiluMulSite:
        kind = type(activation) if isinstance(activation, nn.Module) else activation
        if kind not in self._silu_sites:
            name = getattr(kind, "__name__", str(kind))
            site = SiluMulSite(
                "glu" if is_sigmoid(activation) else None,
                lambda gate, up: activation(gate) * up,
                unique_name(f"{self.owner}/{name} * up"),
            )
            self._silu_sites[kind] = site
            self.patch.sites.append(site)
        return self._silu_sites[kind]

    def _rope_adapter(self, name: str, original: Any) -> Optional[_adapters.Adapter]:
        key = getattr(original, "__code__", original)
        if key not in self._adapters:
            adapter = _adapters.adapter_for(name, original, self.owner)
            self._adapters[key] = adapter
            if adapter is not None:
                self.patch.sites += adapter.sites.values()
        return self._adapters[key]

    # -------------------------------------------------------------------- functions --

    def _rewritten(self, function: Any, owner: Any) -> Any:
        """(new function or None, what was found, what was left); the same for instances of one kind."""
        activations = [
            (n, type(m)) for n, m in getattr(owner, "_modules", {}).items() if not m or not m._modules
        ]
        key = function, tuple(activations)
        if key not in self._functions:

            def make(inner: Any) -> Rewriter:
                return Rewriter(
                    inner,
                    owner,
                    self._silu_site if self.silu_mul else None,
                    self._rope_adapter if self.rope else None,
                    self.rope_names,
                )

            try:
                new, rewriter = rewrite(function, make)
                self._functions[key] = new, rewriter.found, rewriter.left
            except Left as reason:
                self._functions[key] = None, [], [str(reason)]
        return self._functions[key]

    def _record(self, path: str, found: list[tuple[str, str]], left: list[str]) -> None:
        self.patch.mounted += [Mount(path, operation, source) for operation, source in found]
        self.patch.left += [(path, reason) for reason in left]

    def module(self, path: str, module: nn.Module) -> None:
        seen: set[str] = set()
        for cls in type(module).__mro__:
            if cls.__module__.startswith(_MACHINERY) or cls is object:
                continue
            for name, function in list(vars(cls).items()):
                if name in seen or not isinstance(function, types.FunctionType) or name.startswith("__"):
                    continue
                seen.add(name)
                if name.startswith(("init", "_init")) or not mentions(function, self.words):
                    continue
                self._method(f"{path}.{name}" if path else name, module, name, function)
        processor = module.__dict__.get("processor")
        if processor is not None and not isinstance(processor, nn.Module):
            self._processor(f"{path}.processor", module, processor)

    def _method(self, path: str, module: nn.Module, name: str, function: Any) -> None:
        new, found, left = self._rewritten(function, module)
        if new is None:
            self._record(path, [], left)
            return
        if name in module.__dict__:
            self._record(path, [], [f"{name} of this instance was replaced before (a hook or another patch)"])
            return
        self._record(path, found, left)
        object.__setattr__(module, name, types.MethodType(new, module))
        held = weakref.ref(module)  # the handle must not keep the model alive

        def undo() -> None:
            there = held()
            if there is not None and getattr(there.__dict__.get(name), "__func__", None) is new:
                object.__delattr__(there, name)

        self.patch._undo.append(undo)

    def _processor(self, path: str, module: nn.Module, processor: Any) -> None:
        cls = type(processor)
        function = getattr(cls, "__call__", None)
        if not isinstance(function, types.FunctionType) or not mentions(function, self.words):
            return
        new, found, left = self._rewritten(function, None)
        if new is None:
            self._record(path, [], left)
            return
        self._record(path, found, left)
        mounted = copy.copy(processor)
        mounted.__class__ = type(cls.__name__, (cls,), {"__call__": new, "__module__": cls.__module__})
        object.__setattr__(module, "processor", mounted)
        held = weakref.ref(module)

        def undo() -> None:
            there = held()
            if there is not None and there.__dict__.get("processor") is mounted:
                object.__setattr__(there, "processor", processor)

        self.patch._undo.append(undo)


def patch(model: nn.Module, *, rope: bool = True, silu_mul: bool = True) -> Patch:
    """Mounts the fused operations in one model, in place.

    Args:
        model: any module of transformers or diffusers, or a part of one. Patch before torch.compile.
        rope: replace calls of rotary functions.
        silu_mul: replace products with a SiLU or a sigmoid.

    Returns:
        A handle with what was mounted and left; its undo(), or leaving it as a context, restores the model.
        Patching a patched model returns the handle that is there.
    """
    with _lock:
        existing = _patches.get(model)
        if existing is not None:
            return existing
        mounter = _Mounter(model, rope, silu_mul)
        try:
            for path, module in model.named_modules():
                mounter.module(path, module)
        except BaseException:
            mounter.patch.undo()
            raise
        _patches[model] = mounter.patch
        return mounter.patch


def unpatch(model: nn.Module) -> bool:
    """Undoes patch(model). Returns whether there was anything to undo."""
    with _lock:
        existing = _patches.get(model)
        if existing is None:
            return False
        existing.undo()
        return True
