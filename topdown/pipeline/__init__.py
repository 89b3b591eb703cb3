"""The main job: confidential counts are read, and a release is made, in the order on which the guarantees depend."""
