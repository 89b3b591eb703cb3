"""What the machine gives: files that appear whole, streams, memory, worker processes, interrupts."""
