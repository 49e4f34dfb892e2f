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
	slurm-examples/train-restart.sbatch \
	slurm-examples/train-spot.sbatch
# The quickstart's cluster.
examples_testsdir = $(examplesdir)/tests
dist_examples_tests_DATA = tests/packages.txt
examples_libdir = $(examples_testsdir)/lib
dist_examples_lib_DATA = tests/lib/bar.sh tests/lib/packages.sh tests/lib/plain_path.sh
examples_clusterdir = $(examples_testsdir)/cluster
dist_examples_cluster_SCRIPTS = tests/cluster/cluster
examples_cluster_libdir = $(examples_clusterdir)/lib
dist_examples_cluster_lib_DATA = \
	tests/cluster/lib/common.sh \
	tests/cluster/lib/config.sh \
	tests/cluster/lib/daemons.sh \
	tests/cluster/lib/links.sh \
	tests/cluster/lib/network.sh \
	tests/cluster/lib/space-init.sh \
	tests/cluster/lib/space.sh \
	tests/cluster/lib/users.sh
own_folders += $(examples_cluster_libdir) $(examples_clusterdir) $(examples_libdir) \
	$(examples_testsdir)
# End of slurm-examples.mk
