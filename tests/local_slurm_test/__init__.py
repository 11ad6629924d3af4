"""Jobs under a private SLURM on this machine."""
