"""What a plan will give before a budget is spent: the expected errors, and the smallest budget for given targets."""
