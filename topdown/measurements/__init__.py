"""The noisy measurements, and the journal, with which a run that is started again draws the same noise."""
