"""``python -m topdown``: the same as the command ``topdown``."""

from topdown.entry import main

main()
