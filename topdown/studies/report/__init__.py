"""The report of a study: a summary of numbers, charts of the summary, one HTML page of the charts."""
