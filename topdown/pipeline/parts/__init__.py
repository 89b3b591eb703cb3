"""One release in parts: a tree too large for one piece of memory is cut, and every step goes from files to files."""
