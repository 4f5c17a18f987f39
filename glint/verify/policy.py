"""The allow-list: which programs may run at all, and when a sample is a whole program.

Parsing happens in the calling process. That is safe for the short sources admitted here: the parser's own crashes need far longer ones.
"""

import ast
import builtins
import warnings
from typing import Any

LONGEST_SOURCE = 2048
DEEPEST_NESTING = 64
LARGEST_INTEGER = 2**64

BUILTINS = frozenset(
    (
        *("bool", "int", "float", "str", "list", "tuple", "dict", "set"),
        *("abs", "divmod", "max", "min", "pow", "round", "sum"),
        *("all", "any", "enumerate", "filter", "iter", "len", "map", "next", "range", "reversed", "sorted", "zip"),
        *("chr", "ord"),
    )
)
"""The only builtins that a candidate's process offers it."""

METHODS = frozenset(
    (
        *("capitalize", "lower", "swapcase", "title", "upper", "isalpha", "isdigit", "endswith", "startswith"),
        *("count", "find", "index", "rfind", "join", "replace", "split", "rsplit", "strip", "lstrip", "rstrip"),
        *("append", "clear", "copy", "extend", "insert", "pop", "remove", "reverse", "sort"),
        *("get", "items", "keys", "values"),
    )
)
"""The only attributes that may be read. `format` is left out: its text reaches any attribute."""

_STATEMENTS = (
    *(ast.FunctionDef, ast.Return, ast.Assign, ast.AugAssign, ast.Delete, ast.Expr),
    *(ast.If, ast.For, ast.While, ast.Break, ast.Continue, ast.Pass),
)
_EXPRESSIONS = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Starred, ast.Call, ast.keyword),
    *(ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.NamedExpr, ast.Lambda, ast.arguments, ast.arg),
    *(ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension),
    *(ast.JoinedStr, ast.FormattedValue, ast.Yield, ast.YieldFrom),
)
_MARKS = (ast.operator, ast.boolop, ast.unaryop, ast.cmpop, ast.expr_context)
ALLOWED_NODES = (*_STATEMENTS, *_EXPRESSIONS, *_MARKS)


class RejectedError(ValueError):
    """A source that must not run: which rule rejects it, why, and where (line and column from 1; 0 where no place is to blame)."""

    def __init__(self, rule: str, detail: str, line: int = 0, column: int = 0) -> None:
        place = f" (line {line}, column {column})" if line else ""
        super().__init__(f"{rule}: {detail}{place}")
        self.rule, self.detail, self.line, self.column = rule, detail, line, column


def is_complete(source: bytes, function: str, argument: str) -> bool:
    """Return whether `source` is exactly the wanted function and ends in a newline: the rule that stops a sample.

    The allow-list has no say here, so that a sample stops where a reader would call it finished.
    """
    if not source.endswith(b"\n"):
        return False
    try:
        parse(source, function, argument)
    except RejectedError:
        return False
    return True


def admit(source: bytes, function: str, argument: str) -> ast.FunctionDef:
    """Return the definition in `source` if all of it is on the allow-list.

    Raises:
        RejectedError: with the first rule, in reading order, that `source` breaks.

    """
    definition = parse(source, function, argument)
    bound = _bound_names(definition)
    pending: list[tuple[ast.AST, int, ast.AST]] = [(definition, 1, definition)]
    while pending:
        node, depth, place = pending.pop()
        place = node if hasattr(node, "lineno") else place
        broken = _broken_rule(node, depth, bound)
        if broken:
            raise _rejected_at(place, *broken)
        children = list(ast.iter_child_nodes(node))
        pending.extend((child, depth + 1, place) for child in reversed(children))
    return definition


def parse(source: bytes, function: str, argument: str) -> ast.FunctionDef:
    """Return the definition in `source`, which must be `def function(argument):` and its body.

    Raises:
        RejectedError: what `parse_definition` raises, or another name or signature.

    """
    definition = parse_definition(source)
    wanted = ast.arguments(posonlyargs=[], args=[ast.arg(arg=argument)], kwonlyargs=[], kw_defaults=[], defaults=[])
    plain = not definition.decorator_list and definition.returns is None and not getattr(definition, "type_params", [])
    if definition.name != function or not plain or ast.dump(definition.args) != ast.dump(wanted):
        raise _rejected_at(definition, "signature", f"the signature is not def {function}({argument})")
    return definition


def parse_definition(source: bytes) -> ast.FunctionDef:
    """Return the one function that `source` consists of, comments aside.

    Raises:
        RejectedError: too long, not UTF-8, no Python, or anything but one function.

    """
    statements = _syntax_tree(source).body
    if len(statements) != 1 or not isinstance(statements[0], ast.FunctionDef):
        raise RejectedError("shape", "the source is not one function")
    return statements[0]


def _syntax_tree(source: bytes) -> ast.Module:
    if len(source) > LONGEST_SOURCE:
        raise RejectedError("size", f"{len(source)} bytes are more than {LONGEST_SOURCE}")
    try:
        text = source.decode("utf-8", errors="strict")
    except UnicodeDecodeError as error:
        raise RejectedError("encoding", f"byte {error.start} is not UTF-8") from error
    if "\0" in text:
        raise RejectedError("encoding", f"byte {source.index(0)} is null")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise RejectedError("syntax", error.msg, error.lineno or 0, error.offset or 0) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise RejectedError("syntax", f"the parser gave up ({type(error).__name__})") from error


def _rejected_at(node: ast.AST, rule: str, detail: str) -> RejectedError:
    return RejectedError(rule, detail, getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1)


def _bound_names(definition: ast.FunctionDef) -> set[str]:
    """Return every name that the program binds anywhere; such a name may hide a builtin, denied or not."""
    names = set()
    for node in ast.walk(definition):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return names


def _broken_rule(node: ast.AST, depth: int, bound: set[str]) -> tuple[str, str] | None:
    """Return rule and detail if `node` breaks one."""
    if depth > DEEPEST_NESTING:
        return "depth", f"nested deeper than {DEEPEST_NESTING} levels"
    if not isinstance(node, ALLOWED_NODES):
        return "syntax not allowed", type(node).__name__
    match node:
        case ast.Attribute(attr=name) if name not in METHODS or not isinstance(node.ctx, ast.Load):
            return "attribute not allowed", name
        case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.arg(arg=name) if _is_denied(name, bound):
            return "name not allowed", name
        case ast.Constant(value=value):
            return _broken_literal_rule(value)
    return None


def _is_denied(name: str, bound: set[str]) -> bool:
    """Return whether `name` is special, or a builtin that is neither offered nor hidden by a name of the program's own."""
    return name.startswith("__") or (hasattr(builtins, name) and name not in BUILTINS | bound)


def _broken_literal_rule(value: Any) -> tuple[str, str] | None:
    if isinstance(value, int) and value > LARGEST_INTEGER:
        return "literal not allowed", f"an integer of {value.bit_length()} bits"
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        return "literal not allowed", "a lone surrogate"
    if not isinstance(value, int | float | str | None):
        return "literal not allowed", type(value).__name__
    return None
