"""Rest: equilibria, and small motions about them."""
