"""What no release needs: theory, pMSE, statistics of records, plausible tables. Nothing but the top imports it."""
