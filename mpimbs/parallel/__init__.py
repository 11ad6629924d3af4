"""Communication plans: built once, with their buffers; the hot path of each is one call. No physics.

Begin with `butterfly.py`, `exchange.py`; `agreement.py` for what all ranks decide.
"""
