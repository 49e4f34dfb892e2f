# slurm-examples/: files for users and administrators to copy, and the quickstart. An installation
# has them in examples/ beside the documents.
examplesdir = $(docdir)/examples
dist_examples_SCRIPTS = slurm-examples/first-minute.sh slurm-examples/quickstart.sh
dist_examples_DATA = \
	slurm-examples/plugstack.conf slurm-examples/slurm.conf \
	slurm-examples/ranks.sbatch \
	slurm-examples/ring.c slurm-examples/ring.sbatch \
	slurm-examples/scaling.sbatch \
	slurm-examples/torch-ddp.sbatch slurm-examples/torch_ddp.py \
	slurm-examples/to_mlflow.py slurm-examples/to_wandb.py \
	slurm-examples/torch_muster.py \
	slurm-examples/train-array.sbatch \
	slurm-examples/train-elastic.sbatch \
	slurm-examples/train-no-plugin.sbatch \
	slurm-examples/train-node.sbatch \
	slurm-examples/train-nodes.sbatch \
	slurm-examples/train-spot.sbatch
# End of slurm-examples.mk
