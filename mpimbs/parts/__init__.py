"""What a rank sweeps: tiles in lanes, a trunk with limbs and strips, and the passes over all of them."""
