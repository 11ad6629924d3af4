# What the jobs have in common, and what differs from cluster to cluster. Sourced by the scripts beside it, in a job.

# Modules, where the cluster has them: those with which mpi4py and petsc4py were built.
#   module load python openmpi petsc

# MPIMBS_VENV: the virtual environment with mpimbs; without it, the `mpimbs` on PATH.
if [ -n "${MPIMBS_VENV:-}" ]; then source "$MPIMBS_VENV/bin/activate"; fi
command -v mpimbs >/dev/null || die "there is no mpimbs on PATH; set MPIMBS_VENV to its virtual environment"

# One thread a rank: the ranks are the parallelism.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# Ranks are those of the allocation: what lets a desktop's Open MPI start more of them, without a word, ends here.
unset OMPI_MCA_rmaps_base_oversubscribe PRTE_MCA_rmaps_default_mapping_policy

# MPIMBS_LAUNCHER: mpiexec (of the MPI library that mpi4py was built with), where there is one, or srun.
# MPIMBS_SRUN_MPI: how srun reaches the MPI library: pmix, pmi2, ...; by default as the cluster does. srun --mpi=list
: "${SLURM_NTASKS:?give the number of ranks: sbatch --ntasks=...}"
ranks=${ranks:-$SLURM_NTASKS}
[ "$ranks" -le "$SLURM_NTASKS" ] || die "$ranks ranks in an allocation of $SLURM_NTASKS tasks"
launcher=${MPIMBS_LAUNCHER:-$(if command -v mpiexec >/dev/null; then echo mpiexec; else echo srun; fi)}
case $launcher in
  mpiexec) launch=(mpiexec -n "$ranks");;
  srun) launch=(srun -K1 -n "$ranks" ${MPIMBS_SRUN_MPI:+"--mpi=$MPIMBS_SRUN_MPI"});;
  *) die "MPIMBS_LAUNCHER is mpiexec or srun, not '$launcher'";;
esac
