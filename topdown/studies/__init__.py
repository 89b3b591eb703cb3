"""What a projection does to the noise, by replicates against the truth. Confidential: it knows the truth."""
