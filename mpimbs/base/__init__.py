"""What all else stands on: errors, arguments, settings, sizes, places and locks of files. No model, no MPI, no HDF5.

Begin with `errors.py`; `settings.py` says how settings are declared.
"""
