"""The main job: confidential counts in, a release out, in the order that keeps the promises."""
