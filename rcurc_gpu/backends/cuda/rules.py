"""The rules of `plain.verdicts` as CUDA source: they are written once, in Python, and translated from their text.

They are expressions of numbers, NumPy's elementwise functions and each other. All numbers are double; a condition is 0 or 1.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from ..plain import verdicts

# Each after those that it calls.
_RULES: tuple[Callable[..., Any], ...] = (
    *(verdicts.first_status, verdicts.share_bin, verdicts.spread_bin, verdicts.thin, verdicts.has_noise, verdicts.beatable),
    *(verdicts.wide, verdicts.marked, verdicts.doubtful, verdicts.final_status, verdicts.skewed, verdicts.margin),
    *(verdicts.unclear, verdicts.most_rivals, verdicts.contestable, verdicts.verdict),
)
_CONSTANTS = ("OK", "TOO_FEW_OBSERVATIONS", "DOUBTFUL", "FAILED", "CONTESTABLE", "UNKNOWN", "FORMER", "BINS")
_OPERATORS: dict[type, str] = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&&", ast.BitOr: "||"},
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="},
}
# NumPy's and Python's functions: `larger` and `smaller` are NaN if one of the two is, as NumPy has it.
_FUNCTIONS = {
    **{"np.sqrt": "sqrt", "np.log": "log", "np.rint": "rint", "np.maximum": "larger", "np.minimum": "smaller"},
    **{"np.logical_not": "!", "max": "larger", "min": "smaller"},
}
_HELPERS = """
__device__ __forceinline__ double larger(double x, double y) { return x >= y || x != x ? x : y; }
__device__ __forceinline__ double smaller(double x, double y) { return x <= y || x != x ? x : y; }
"""


@cache
def rules() -> str:
    """Names of statuses and bits, the struct `Limits`, and a function for each rule."""
    fields = "".join(f"    double {name};\n" for name in verdicts.Limits._fields)
    constants = "".join(f"constexpr int {name} = {getattr(verdicts, name)};\n" for name in _CONSTANTS)
    return f"{constants}struct Limits {{\n{fields}}};\n{_HELPERS}" + "\n".join(_function(rule) for rule in _RULES)


def _function(rule: Callable[..., Any]) -> str:
    definition = ast.parse(inspect.getsource(rule)).body[0]
    assert isinstance(definition, ast.FunctionDef)
    names = [argument.arg for argument in definition.args.args]
    given = [f"const Limits& {name}" if name == "at" else f"double {name}" for name in names]
    known, lines, outputs = set(names), [], 0
    for statement in definition.body:
        match statement:
            case ast.Expr():  # the docstring
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                lines.append(f"{'' if name in known else 'double '}{name} = {_expression(value, known)};")
                known.add(name)
            case ast.Return(value=ast.Tuple(elts=values)):
                outputs = len(values)
                lines += [f"out{k} = {_expression(value, known)};" for k, value in enumerate(values)]
            case ast.Return(value=ast.expr() as value):
                lines.append(f"return {_expression(value, known)};")
            case _:
                raise ValueError(f"{rule.__name__}: a statement that cannot be translated: {ast.unparse(statement)}")
    given += [f"double& out{k}" for k in range(outputs)]
    kind = "void" if outputs else "double"
    body = "\n".join(f"    {line}" for line in lines)
    return f"__device__ __forceinline__ {kind} {rule.__name__}({', '.join(given)}) {{\n{body}\n}}\n"


def _expression(node: ast.expr, known: set[str]) -> str:
    """C++ for an expression, in parentheses."""

    def inner(x: ast.expr) -> str:
        return _expression(x, known)

    match node:
        case ast.Constant(value=float() | int() as value):
            return repr(float(value))
        case ast.Name(id=name):
            return name if name in known else repr(float(getattr(verdicts, name)))
        case ast.Attribute(value=owner, attr=name):
            return f"{inner(owner)}.{name}"
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return f"(-{inner(x)})"
        case ast.BinOp(left=x, op=op, right=y):
            return f"({inner(x)} {_OPERATORS[type(op)]} {inner(y)})"
        case ast.Compare(left=x, ops=[compared], comparators=[y]):
            return f"({inner(x)} {_OPERATORS[type(compared)]} {inner(y)})"
        case ast.Call(func=function, args=[condition, x, y]) if ast.unparse(function) == "pick":
            return f"({inner(condition)} ? double({inner(x)}) : double({inner(y)}))"
        case ast.Call(func=function, args=args):
            name = ast.unparse(function)
            return f"({_FUNCTIONS.get(name, name)}({', '.join(map(inner, args))}))"
        case _:
            raise ValueError(f"an expression that cannot be translated: {ast.unparse(node)}")
