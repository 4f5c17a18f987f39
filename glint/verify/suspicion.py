"""Signs that a program does not compute its answer. They decide nothing; a person looks at what they find."""

import ast
from collections.abc import Iterable

from glint.verify import policy
from glint.verify.judge import Candidate

TRIVIAL_LITERALS = frozenset(map(repr, (None, True, False, -1, 0, 1, 2, "", [], ())))


def suspicions(candidate: Candidate, reference: str) -> tuple[str, ...]:
    """Return what is suspicious about an admitted program, nothing for most.

    `ignores_argument`: the argument is never read. `holds_test_value`: a literal equals the argument or the expected value of a case and
    is neither trivial nor in `reference`, the family's expression.
    """
    definition = policy.parse(candidate.source, candidate.function, candidate.argument)
    found = []
    if not any(isinstance(node, ast.Name) and node.id == candidate.argument for node in ast.walk(definition)):
        found.append("ignores_argument")
    tested = {repr(value) for case in candidate.cases for value in (case.argument, case.expected)}
    if _literals(definition.body) & tested - TRIVIAL_LITERALS - _literals([ast.parse(reference, mode="eval")]):
        found.append("holds_test_value")
    return tuple(found)


def _literals(trees: Iterable[ast.AST]) -> set[str]:
    """Return the texts of all literal values in `trees`, displays of literals among them."""
    found = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Constant | ast.UnaryOp | ast.List | ast.Tuple):
            try:
                found.add(repr(ast.literal_eval(node)))
            except ValueError:
                continue
    return found
