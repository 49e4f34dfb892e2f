# slurm-examples/: what a user or an administrator copies, and the quickstart.
EXTRA_DIST += slurm-examples/quickstart.sh slurm-examples/train-spot.sbatch \
	slurm-examples/plugstack.conf slurm-examples/slurm.conf
# End of slurm-examples.mk
