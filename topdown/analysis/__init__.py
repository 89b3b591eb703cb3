"""Questions to a published release, and the forms of other people's tools that it is written in."""
