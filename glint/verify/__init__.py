"""Whether a program does what was asked: allow-list, sandbox, reward cases and the property suite."""

from glint.verify.judge import Candidate, Case, Verdict, Verifier, property_cases, read_cases
from glint.verify.policy import is_complete
from glint.verify.pool import Limits, VerifierError

__all__ = ["Candidate", "Case", "Limits", "Verdict", "Verifier", "VerifierError", "is_complete", "property_cases", "read_cases"]
