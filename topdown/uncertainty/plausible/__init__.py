"""Tables drawn from what measurements leave plausible, under a stated prior. Experimental."""
