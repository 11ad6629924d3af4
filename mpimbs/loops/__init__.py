"""Loop joints and gears: their ends, what velocities ask of them, and when walks close them."""
