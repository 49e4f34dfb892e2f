# bench/: side-by-side measurements against peers; built by the scripts that need them.
EXTRA_PROGRAMS += bench/copy_state bench/train_step bench/reduce_step
bench_copy_state_LDADD = libcommon.la
bench_reduce_step_LDADD = $(trainer_LIBS)
EXTRA_DIST += bench/reduction.sh bench/results/reduction-2026-11-21.txt
bench_train_step_LDADD = $(trainer_LIBS)
EXTRA_DIST += bench/train-cpu.sh bench/train_cpu.py bench/train_torch.py
EXTRA_DIST += bench/checkpoint.sh bench/checkpoint.py bench/checkpoint_disk.py bench/checkpoint_memory.py \
	bench/checkpoint_muster.py bench/checkpoint_torch.py
EXTRA_DIST += bench/results/train-cpu-2026-11-21.txt bench/results/checkpoint-2026-11-21.txt
# End of bench.mk
