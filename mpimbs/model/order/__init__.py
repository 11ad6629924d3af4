"""Orders of bodies: depth first, as listed, repeated."""
