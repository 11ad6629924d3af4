"""Studies and predictions of speed, what they measure, and checks of models and couplings."""
