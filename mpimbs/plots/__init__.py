"""What samples hold, by names, with labels and units; pictures of motions and modes, and what all pictures share."""
