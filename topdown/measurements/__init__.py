"""The protected numbers, and the sealed record by which a run that is started again draws the same."""
