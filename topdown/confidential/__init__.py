"""The confidential counts, and `measure`, the only way to publish anything about them. Few rooms may import this one
(docs/architecture.md).
"""
