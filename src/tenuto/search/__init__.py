"""Search over one's own history: an index that can be thrown away and built again from the logs."""
