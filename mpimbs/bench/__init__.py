"""Speed measured, studied, fitted and predicted. No results of mechanics.

Begin with `bench.py`, `study.py`; `predict/predict.py`.
"""
