"""Studies of signals: whether a signal predicts what a trade earns, net of costs."""

from marketdata.studies.study import Study, study

__all__ = ["Study", "study"]
