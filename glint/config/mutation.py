"""How the property suite is tried on wrong programs."""

from glint.config.base import Positive, Strict


class MutationJob(Strict):
    """Run wrong programs through both judges, one task a family."""

    reward_cases: Positive
    """Hidden cases of the task."""
    property_inputs: Positive
    """Inputs of the property suite."""
