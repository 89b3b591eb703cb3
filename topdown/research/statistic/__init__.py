"""One bounded statistic of confidential records: its privacy loss, its measurement, and its release."""
