"""Rewrites one function of a model: `silu(a) * b`, `sigmoid(a) * b` and calls of rotary functions go through given
callables.

The source is parsed, changed and compiled again with its own file and line numbers, so that tracebacks,
profilers and torch.compile see ordinary code. The new function keeps the module's own globals; what was put
in reaches it as closure variables.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from typing import Any, Callable, Optional, Union

import torch
import torch.nn.functional as functional
from torch import nn

SILU = "_libbitexact_silu_mul"
# Functions that models call where they write a rotation out, and the name that the adapter of such a rotation has.
ROTATIONS = {"rotate_half", "_rotate_half"}
INLINE = "x * cos + rotate_half(x) * sin"


class Left(Exception):
    """Why a function stays as it is."""


def is_silu(callee: Any) -> bool:
    """Does calling it do what F.silu does, and nothing else?"""
    if callee is functional.silu:
        return True
    if isinstance(callee, nn.Module):
        known = isinstance(callee, nn.SiLU) or type(callee).__name__ in ("SiLUActivation", "FP32SiLU")
        hooked = callee._forward_hooks or callee._forward_pre_hooks or "forward" in callee.__dict__
        return known and not hooked and not getattr(callee, "inplace", False)
    return False


def is_sigmoid(callee: Any) -> bool:
    return callee in (torch.sigmoid, functional.sigmoid)


def _looks_like_activation(callee: Any) -> bool:
    if isinstance(callee, nn.Module):
        return "Norm" not in type(callee).__name__ and not any(True for _ in callee.parameters())
    return callee in (functional.gelu, functional.relu)


def _dotted(node: ast.expr) -> Optional[list[str]]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        front = _dotted(node.value)
        return [*front, node.attr] if front else None
    return None


class Rewriter(ast.NodeTransformer):
    """Finds and replaces; `closure` is what the new code needs, `found` says what was replaced."""

    def __init__(
        self,
        function: Callable[..., Any],
        owner: Any,
        silu_site: Optional[Callable[[Any], Any]],
        rope_adapter: Optional[Callable[[str, Any], Any]],
        rope_names: set[str],
    ) -> None:
        self.function = function
        self.owner = owner
        self.silu_site = silu_site
        self.rope_adapter = rope_adapter
        self.rope_names = rope_names
        self.closure: dict[str, Any] = {}
        self.found: list[tuple[str, str]] = []
        self.left: list[str] = []
        self._depth = 0
        self._local: dict[str, ast.stmt] = {}

    # --------------------------------------------------------------------------- silu --

    def _activation(self, node: ast.expr) -> Any:
        """The object that a call of one argument calls, if it can be told without running anything."""
        if not (isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords):
            return None
        names = _dotted(node.func)
        if not names or isinstance(node.args[0], ast.Starred):
            return None
        code = self.function.__code__
        first = code.co_varnames[0] if code.co_argcount else None
        if names[0] == first and self.owner is not None:
            value = self.owner
        elif names[0] in self.function.__globals__ and names[0] not in code.co_varnames:
            value = self.function.__globals__[names[0]]
        else:
            return None
        for name in names[1:]:
            value = getattr(value, name, None)
        return value

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add) and self.rope_adapter is not None:
            return self._inline_rotation(node)
        if self.silu_site is None or not isinstance(node.op, ast.Mult):
            return node
        for gate, up in ((node.left, node.right), (node.right, node.left)):
            activation = self._activation(gate)
            if activation is None or isinstance(up, ast.Constant):
                continue
            if not is_silu(activation) and not is_sigmoid(activation):
                if _looks_like_activation(activation):
                    self.left.append(
                        f"{ast.unparse(node)}: {getattr(activation, '__name__', type(activation).__name__)}"
                    )
                continue
            name = f"{SILU}_{len(self.closure)}"
            self.closure[name] = self.silu_site(activation)
            self.found.append(("silu_mul", ast.unparse(node)))
            assert isinstance(gate, ast.Call)
            # Where the gate comes second it is evaluated first; that shows only in operands with side effects.
            call = ast.Call(ast.Name(name, ast.Load()), [gate.args[0], up], [])
            return ast.copy_location(call, node)
        return node

    # --------------------------------------------------------------------------- rope --

    def _inline_rotation(self, node: ast.BinOp) -> ast.AST:
        """x * cos + rotate_half(x) * sin, written out in a method."""
        plain, turned = node.left, node.right
        if not all(isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult) for side in (plain, turned)):
            return node
        x, call = plain.left, turned.left  # type: ignore[attr-defined]
        if not (isinstance(x, ast.Name) and isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            return node
        if call.func.id not in ROTATIONS or call.keywords or list(map(ast.dump, call.args)) != [ast.dump(x)]:
            return node
        name = f"_libbitexact_inline_{call.func.id}"
        if name not in self.closure:
            assert self.rope_adapter is not None
            adapter = self.rope_adapter(INLINE, self._original(call.func.id))
            if adapter is None:
                return node
            self.closure[name] = adapter
        self.found.append(("rope", ast.unparse(node)))
        arguments = [x, plain.right, turned.right]  # type: ignore[attr-defined]
        return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), arguments, []), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if self._depth > 0 and node.name in self.rope_names:
            return node  # the rotary function itself: it stays, and is the truth
        self._depth += 1
        if self._depth == 1:
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef) and inner is not node and inner.name in self.rope_names:
                    self._local[inner.name] = inner
                if isinstance(inner, ast.ImportFrom):
                    for alias in inner.names:
                        if (alias.asname or alias.name) in self.rope_names:
                            self._local[alias.asname or alias.name] = inner
        self.generic_visit(node)
        self._depth -= 1
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if (
            self.rope_adapter is None
            or not isinstance(node.func, ast.Name)
            or node.func.id not in self.rope_names
        ):
            return node
        name = f"_libbitexact_{node.func.id}"
        if name not in self.closure:
            adapter = self.rope_adapter(node.func.id, self._original(node.func.id))
            if adapter is None:
                self.left.append(f"{ast.unparse(node)}: not a rotary function that is known (see register)")
                return node
            self.closure[name] = adapter
        self.found.append(("rope", ast.unparse(node)))
        node.func = ast.copy_location(ast.Name(name, ast.Load()), node.func)
        return node

    def _original(self, name: str) -> Any:
        local = self._local.get(name)
        if local is None:
            original = self.function.__globals__.get(name)
            if original is None:
                raise Left(f"{name} is not a global of its module")
            return original
        scope: dict[str, Any] = {}
        tree = ast.fix_missing_locations(ast.Module([local], []))
        exec(compile(tree, _file(self.function), "exec"), self.function.__globals__, scope)
        original = scope[name]
        if isinstance(local, ast.FunctionDef):
            unknown = [
                n for n in _loaded(original.__code__) if n not in original.__globals__ and not _builtin(n)
            ]
            if unknown:
                raise Left(f"{name} uses {', '.join(unknown)} of the function around it")
        return original


def _loaded(code: types.CodeType) -> list[str]:
    import dis

    return [i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")]


def _builtin(name: str) -> bool:
    import builtins

    return hasattr(builtins, name)


def _file(function: Callable[..., Any]) -> str:
    return inspect.getsourcefile(function) or "<unknown>"


def mentions(function: Any, words: set[str]) -> bool:
    """Could there be something to replace? Looks at names only, nested code included."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    codes = [code] if code else []
    while codes:
        code = codes.pop()
        if words & {*code.co_names, *code.co_varnames, *code.co_freevars}:
            return True
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return False


def rewrite(function: Any, make: Callable[[Any], Rewriter]) -> tuple[Optional[Callable[..., Any]], Rewriter]:
    """The function with its replacements, or None if there are none.

    Args:
        function: a plain function, perhaps decorated.
        make: makes the Rewriter for the undecorated function.

    Raises:
        Left: it cannot be rewritten; the text says why.
    """
    inner = inspect.unwrap(function)
    rewriter = make(inner)
    try:
        source = textwrap.dedent(inspect.getsource(inner))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError) as error:
        raise Left(f"no source: {error}") from error
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise Left("not a plain function")
    if inner is not function and not definition.decorator_list:
        raise Left("wrapped where its source does not show it, as by a decorator of its class")
    ast.increment_lineno(tree, inner.__code__.co_firstlineno - 1)
    rewriter.visit(definition)
    if not rewriter.found:
        return None, rewriter
    cells = dict(zip(inner.__code__.co_freevars, inner.__closure__ or ()))
    variables = {**rewriter.closure, **{name: cell.cell_contents for name, cell in cells.items()}}
    return _compile(definition, inner, variables), rewriter


def _compile(definition: ast.FunctionDef, inner: Any, variables: dict[str, Any]) -> Callable[..., Any]:
    arguments = ast.arguments([], [ast.arg(name) for name in variables], None, [], [], None, [])
    body: list[Union[ast.stmt]] = [definition, ast.Return(ast.Name(definition.name, ast.Load()))]
    factory = ast.FunctionDef("_libbitexact_factory", arguments, body, [], None)
    if hasattr(factory, "type_params"):
        factory.type_params = []
    ast.copy_location(factory, definition)
    module = ast.fix_missing_locations(ast.Module([factory], []))
    flags = inner.__code__.co_flags & 0x1000000  # from __future__ import annotations
    code = compile(module, _file(inner), "exec", flags=flags, dont_inherit=True)
    (factory_code,) = (c for c in code.co_consts if isinstance(c, types.CodeType))
    try:
        made = types.FunctionType(factory_code, inner.__globals__)(**variables)
    except Exception as error:  # decorators may need what only the class body had
        raise Left(f"its decorators cannot run again: {error!r}") from error
    made.__qualname__ = inner.__qualname__
    made.__module__ = inner.__module__
    return made
