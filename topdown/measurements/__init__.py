"""The protected numbers, and the sealed record that keeps a run's from being drawn again."""
