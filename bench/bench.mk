# bench/: side-by-side measurements against peers. The scripts that need these programs build them.
EXTRA_PROGRAMS += bench/read_rate
bench_read_rate_LDADD = libcommon.la
EXTRA_DIST += bench/figure.py bench/generate.sh bench/generate.py \
	bench/results/generate-2026-11-27.txt \
	bench/tokenize.sh bench/tokenize_text.py bench/results/tokenize-2026-11-27.txt
EXTRA_PROGRAMS += bench/copy_state bench/train_step bench/reduce_step bench/hide_step \
	bench/launch_start bench/launch_ours
bench_copy_state_LDADD = libcommon.la
bench_reduce_step_LDADD = $(trainer_LIBS)
bench_hide_step_LDADD = $(trainer_LIBS)
EXTRA_DIST += bench/nodes.sh bench/nodes.py
EXTRA_DIST += bench/start.sh bench/start.py bench/results/start-2026-11-29.txt \
	bench/results/checkpoint-memory-2026-11-29.txt
EXTRA_DIST += bench/restart.sh bench/restart.py bench/restart_torch.py \
	bench/results/restart-2026-11-29.txt
EXTRA_PROGRAMS += bench/worlds
bench_worlds_SOURCES = bench/worlds.c bench/layers.h
bench_worlds_LDADD = $(trainer_LIBS)
EXTRA_DIST += bench/worlds.sh bench/worlds.py bench/worlds_check.py bench/layers.h \
	bench/results/worlds-2026-11-29.txt bench/results/worlds-2026-11-29.svg \
	bench/results/nodes-2026-11-29.txt
EXTRA_DIST += bench/hiding.sh bench/reduction.sh bench/results/reduction-2026-11-22.txt \
	bench/results/overlap-2026-11-22.txt bench/results/overlap-2026-11-25.txt \
	bench/results/reduction-2026-11-25.txt
bench_train_step_LDADD = $(trainer_LIBS)
bench_launch_ours_LDADD = $(trainer_LIBS)
if HAVE_PMIX
EXTRA_PROGRAMS += bench/launch_fence
bench_launch_fence_CFLAGS = $(AM_CFLAGS) $(PMIX_CFLAGS)
bench_launch_fence_LDADD = $(PMIX_LIBS)
endif
EXTRA_DIST += bench/setup.bash
EXTRA_DIST += bench/train-cpu.sh bench/train_cpu.py bench/train_torch.py
EXTRA_DIST += bench/torch-step.sh bench/torch_step.py \
	bench/torch-canonical.sh bench/torch_canonical.py \
	bench/results/torch-canonical-2026-11-27.txt \
	bench/torch-save.sh bench/results/torch-save-2026-11-26.txt \
	bench/checkpoint.sh bench/checkpoint.py bench/checkpoint_disk.py \
	bench/checkpoint_memory.py bench/checkpoint_muster.py bench/checkpoint_torch.py
EXTRA_DIST += bench/launch.sh bench/launch.py bench/launch_torch.py \
	bench/results/launch-2026-11-22.txt bench/results/launch-network-2026-11-22.txt \
	bench/results/launch-network-2026-11-23.txt bench/results/launch-2026-11-21.svg \
	bench/results/launch-2026-11-25.txt bench/results/launch-calls-2026-12-01.txt
EXTRA_DIST += bench/results/train-cpu-2026-11-21.txt bench/results/checkpoint-2026-11-21.txt \
	bench/results/train-cpu-2026-11-25.txt bench/results/checkpoint-2026-11-25.txt
# For bench/train-gpu.sh: the weights that a training begins with, and the floor of a step on a GPU.
# tests/gpu.sh packs both.
check_PROGRAMS += bench/initial_weights
bench_initial_weights_LDADD = $(trainer_LIBS)
step_floor = bench/device_clock.c bench/device_clock.h bench/ops_trace.c bench/ops_trace.h \
	bench/gemm_time.c bench/gemm_time.h
if HAVE_CUBLAS
check_PROGRAMS += bench/step_floor
bench_step_floor_SOURCES = bench/step_floor.c $(step_floor)
bench_step_floor_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
bench_step_floor_LDADD = $(trainer_LIBS) $(cuda_kernels)
endif
EXTRA_DIST += bench/step_floor.c $(step_floor) bench/train-gpu.sh bench/train_gpu.py \
	bench/train_gpu_figures.py bench/train_gpu_runs.py bench/train_gpu_text.py \
	bench/train_gpu_torch.py
EXTRA_DIST += bench/checkpoint-gpu.sh bench/checkpoint_gpu.py bench/checkpoint_gpu_torch.py
EXTRA_DIST += bench/overlap.sh bench/overlap.py bench/overlap_torch.py bench/overlap_trace.py
# End of bench.mk
