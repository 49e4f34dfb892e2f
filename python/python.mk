# python/: the package muster, for PyTorch, over libmuster.
packagedir = $(datadir)/muster/python/muster
dist_package_DATA = \
	python/muster/__init__.py \
	python/muster/__main__.py \
	python/muster/_lib.py \
	python/muster/_programs.py \
	python/muster/beginning.py \
	python/muster/buckets.py \
	python/muster/data.py \
	python/muster/dcp.py \
	python/muster/directory.py \
	python/muster/ending.py \
	python/muster/errors.py \
	python/muster/generators.py \
	python/muster/handover.py \
	python/muster/inline.py \
	python/muster/lightning.py \
	python/muster/metrics.py \
	python/muster/numerics.py \
	python/muster/objects.py \
	python/muster/phases.py \
	python/muster/process.py \
	python/muster/pytree.py \
	python/muster/rank_state.py \
	python/muster/run.py \
	python/muster/sharded.py \
	python/muster/slots.py \
	python/muster/stragglers.py \
	python/muster/streams.py \
	python/muster/tensors.py \
	python/muster/torchtitan.py \
	python/muster/transformers.py \
	python/muster/tree.py \
	python/muster/values.py \
	python/muster/watch.py \
	python/muster/workers.py \
	python/muster/py.typed
EXTRA_DIST += pyproject.toml setup.py
own_folders += $(packagedir) $(datadir)/muster/python $(datadir)/muster
# End of python.mk
