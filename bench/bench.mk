# bench/: side-by-side measurements against peers; built by the scripts that need them.
EXTRA_PROGRAMS += bench/train_step
bench_train_step_LDADD = $(trainer_LIBS)
EXTRA_DIST += bench/results/train-cpu-2026-11-21.txt bench/train-cpu.sh bench/train_cpu.py bench/train_torch.py
# End of bench.mk
