"""The Census Bureau's file formats: redistricting files, privacy-protected microdata, noisy measurement files."""
