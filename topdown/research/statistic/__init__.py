"""One bounded statistic of confidential records: what it costs, how it is measured, and its release."""
