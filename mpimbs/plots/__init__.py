"""What samples hold, by names, with labels and units; pictures of motions and modes. Nothing is simulated.

Begin with `quantities.py`, `pictures.py`.
"""
