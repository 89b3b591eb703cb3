"""The confidential counts, and the only door out: `measure`. Few rooms may import this one (docs/architecture.md)."""
