"""Studies of speed and cost, and pictures."""
