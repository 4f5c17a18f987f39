"""From the files of a run to the tables of its report: estimates, seeds, training, selection, one example, provenance."""

from glint.analysis.run import OUTPUTS, analyse

__all__ = ["OUTPUTS", "analyse"]
