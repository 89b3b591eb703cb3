"""What no release needs: plausible tables, drawn under a stated prior. Experimental; no other room imports it."""
