"""Operating system services: files that appear only when complete, output streams, memory, worker processes,
interrupts.
"""
