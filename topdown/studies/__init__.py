"""Studies: replicates of measuring and projecting, compared with the true counts. Everything here is confidential."""
