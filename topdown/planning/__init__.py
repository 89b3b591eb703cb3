"""What a plan will do before a budget is spent: expected errors, and the smallest budget for stated ones."""
