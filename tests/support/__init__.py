"""What several test files share: strategies, places, and the server of runs that are killed."""
