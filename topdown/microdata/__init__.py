"""From a release to records: one per person or household, counted back before they are published."""
