"""The discrete laws: exact probabilities, integers only."""
