# tests/: unit tests (cmocka, each one program tests/unit/test_NOUN), command and cluster tests
# (bats).
# Of a search a sample. OpenMP's threads don't spin: more programs run than there are CPUs.
AM_TESTS_ENVIRONMENT = export CMOCKA_MESSAGE_OUTPUT=TAP OMP_WAIT_POLICY=passive \
	MUSTER_TEST_SHARE=$${MUSTER_TEST_SHARE-16};
# `make check` has four tests for each CPU at a time, for many wait; `make -j check` as many as
# that says.
check_jobs = $(if $(filter -j%,$(MAKEFLAGS)),,-j`expr 4 '*' $$(nproc)`)
AM_MAKEFLAGS = $(if $(filter check,$(MAKECMDGOALS)),$(check_jobs))
LOG_COMPILER = bash $(top_srcdir)/tests/lib/tap-skip.sh
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
TESTS =
unit_tests =

if HAVE_CMOCKA
# First those that take long.
unit_tests += tests/unit/test_comm_failure tests/unit/test_owner tests/unit/test_rank_links
unit_tests += tests/unit/test_comm_reason tests/unit/test_ckptd_hear tests/unit/test_ckptd_node
unit_tests += tests/unit/test_comm_nccl tests/unit/test_ops_cuda tests/unit/test_model_bits
unit_tests += tests/unit/test_step_cuda tests/unit/test_ddp tests/unit/test_ddp_cuda
unit_tests += tests/unit/test_ckptd_writers tests/unit/test_job_service tests/unit/test_end_channel
unit_tests += tests/unit/test_end
endif

include tests/shim/shim.mk
include tests/fakes/fakes.mk
include tests/unit/bench/bench.mk
include tests/unit/checkpoint/attempt/attempt.mk
include tests/unit/checkpoint/client/client.mk
include tests/unit/checkpoint/directory/directory.mk
include tests/unit/checkpoint/format/format.mk
include tests/unit/checkpoint/load/load.mk
include tests/unit/checkpoint/protocol/protocol.mk
include tests/unit/checkpoint/save/save.mk
include tests/unit/checkpoint/service/service.mk
include tests/unit/checks/checks.mk
include tests/unit/common/common.mk
include tests/unit/launch/launch.mk
include tests/unit/restart/restart.mk
include tests/unit/lib/lib.mk
include tests/unit/order/order.mk
include tests/unit/plugin/plugin.mk
include tests/unit/runs/runs.mk
include tests/unit/shim/shim.mk
include tests/unit/slurm/slurm.mk
include tests/unit/spot/spot.mk
include tests/unit/telemetry/telemetry.mk
include tests/unit/text/text.mk
include tests/unit/top/top.mk
include tests/unit/trainer/comm/comm.mk
include tests/unit/trainer/cpu/cpu.mk
include tests/unit/trainer/cuda/host/host.mk
include tests/unit/trainer/cuda/kernels/kernels.mk
include tests/unit/trainer/data/data.mk
include tests/unit/trainer/ddp/ddp.mk
include tests/unit/trainer/generate/generate.mk
include tests/unit/trainer/model/model.mk
include tests/unit/trainer/ops/ops.mk
include tests/unit/trainer/run/run.mk
include tests/unit/trainer/state/state.mk

if HAVE_CMOCKA
check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
endif
EXTRA_DIST += tests/cluster/libmuster.bats tests/libmuster.bats tests/nccl.bats tests/gpu.sh \
	tests/gpu_train.sh tests/gpu_slurm.sh tests/gpu.bats tests/cluster/gpu.bats
EXTRA_DIST += tests/bench_gpu.bats
EXTRA_DIST += tests/python.bats tests/python_newest.bats tests/python/ranks.py \
	tests/python/late_gpu.py tests/python/starter.py tests/python/stand.py tests/python/program.py \
	tests/python/test_values.py tests/python/test_order.py tests/python/test_objects.py \
	tests/python/test_phases.py tests/python/test_streams.py tests/python/test_handover.py \
	tests/python/test_run.py tests/python/test_dcp.py tests/python/dcp_program.py \
	tests/python/test_canonical.py tests/python/canonical_program.py tests/python/test_gpu.py \
	tests/python/test_pytree.py tests/python/jax_program.py \
	tests/python/test_frameworks.py tests/python/accelerate_program.py \
	tests/python/lightning_program.py tests/python/transformers_program.py \
	tests/lib/doc_programs.py tests/lib/newest.bash tests/lib/python_package.bash \
	tests/cluster/frameworks.bats \
	tests/cluster/pytorch.bats tests/cluster/pytorch.bash tests/cluster/wheel.bats
EXTRA_DIST += tests/storm.sh tests/cluster/storm.bats tests/cluster/storm.bash \
	tests/cluster/ring.bash
EXTRA_DIST += tests/models.bats tests/models/commit.pml tests/models/owner.pml \
	tests/models/restart.pml tests/models/stop.pml

EXTRA_DIST += tests/unit/trainer/cpu/threads_sample.h
EXTRA_DIST += tests/unit/files.h tests/unit/hang.h tests/unit/quiet.h tests/unit/skip_main.h \
	tests/unit/trainer/state/odd_table.h tests/unit/ports.h tests/golden \
	tests/checkpoint_kill.bats \
	tests/ckpt_command.bats tests/restart_command.bats \
	tests/fuzz/fuzz_manifest.c tests/fuzz/fuzz_safetensors.c

# What bats files run.
check_PROGRAMS += tests/tools/ckpt_writer
tests_tools_ckpt_writer_SOURCES = tests/tools/ckpt_writer.c tests/tools/ckpt_sample.c \
	tests/tools/ckpt_sample.h
tests_tools_ckpt_writer_LDADD = libcheckpoint.la
if HAVE_BPE
check_PROGRAMS += tests/tools/text_tokens
tests_tools_text_tokens_LDADD = libtext.la
endif
partial_io = tests/tools/partial_io.c tests/tools/partial_io.h
check_LTLIBRARIES = tests/tools/partial_io.la
# What it has in the C library's place is visible.
preloaded_CFLAGS = $(AM_CFLAGS) -fvisibility=default
our_calls = tests/tools/our_calls.c tests/tools/our_calls.h
our_calls_CPPFLAGS = $(AM_CPPFLAGS) '-DOUR_FOLDERS="$(prefix)/","$(abs_top_builddir)/"'
tests_tools_partial_io_la_SOURCES = $(partial_io) $(our_calls)
tests_tools_partial_io_la_CPPFLAGS = $(our_calls_CPPFLAGS)
tests_tools_partial_io_la_CFLAGS = $(preloaded_CFLAGS)
tests_tools_partial_io_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
check_LTLIBRARIES += tests/tools/fail_call.la
tests_tools_fail_call_la_SOURCES = tests/tools/fail_call.c $(our_calls)
tests_tools_fail_call_la_CPPFLAGS = $(our_calls_CPPFLAGS)
tests_tools_fail_call_la_CFLAGS = $(preloaded_CFLAGS)
tests_tools_fail_call_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
check_LTLIBRARIES += tests/tools/libpower.la tests/tools/power_loss.la tests/tools/test_filter.la \
	tests/tools/slow_steps.la
tests_tools_test_filter_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_tools_slow_steps_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_tools_libpower_la_SOURCES = tests/tools/power_store.c tests/tools/power_store.h
tests_tools_libpower_la_LIBADD = libcommon.la
tests_tools_power_loss_la_LIBADD = tests/tools/libpower.la
tests_tools_power_loss_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
if HAVE_SLURM
# The plugin with calls that fail.
check_LTLIBRARIES += tests/tools/spank_faulty.la
tests_tools_spank_faulty_la_CPPFLAGS = $(libplugin_la_CPPFLAGS)
tests_tools_spank_faulty_la_CFLAGS = $(libplugin_la_CFLAGS)
tests_tools_spank_faulty_la_LIBADD = libplugin.la
wrap = -Wl,--wrap=
tests_tools_spank_faulty_la_LDFLAGS = $(spank_muster_la_LDFLAGS) -shared -rpath /nowhere \
	$(wrap)spank_args_parse $(wrap)spank_srun_init $(wrap)spank_srun_post_opt \
	$(wrap)spank_srun_exit \
	$(wrap)spank_alloc_init $(wrap)spank_alloc_post_opt $(wrap)spank_stepd_init \
	$(wrap)spank_stepd_post_opt $(wrap)spank_stepd_user_init $(wrap)spank_stepd_task_init \
	$(wrap)spank_stepd_task_exit $(wrap)spank_job_prolog $(wrap)spank_job_epilog $(wrap)fork \
	$(wrap)pipe2 $(wrap)socket $(wrap)mmap $(wrap)memfd_create $(wrap)mkdirat $(wrap)fchown \
	$(wrap)unlinkat $(wrap)calloc $(wrap)malloc $(wrap)realloc $(wrap)getpwuid_r $(wrap)setresuid \
	$(wrap)setgroups $(wrap)dlsym $(wrap)execve $(wrap)spank_option_register $(wrap)spank_getenv \
	$(wrap)spank_setenv $(wrap)spank_job_control_setenv $(wrap)spank_get_item
tests_tools_spank_faulty_la_DEPENDENCIES = $(spank_muster_la_DEPENDENCIES)
endif
# muster-train, some of whose ranks err.
check_PROGRAMS += tests/tools/train_faulty
tests_tools_train_faulty_SOURCES = tests/tools/train_faulty.c $(muster_train_SOURCES)
tests_tools_train_faulty_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=sampler_at
tests_tools_train_faulty_LDADD = $(muster_train_LDADD)
if HAVE_CUBLAS
if HAVE_CMOCKA
fake_attention = tests/fakes/fake_attention.c tests/fakes/fake_attention.h
# muster-train on a GPU that is the host.
check_PROGRAMS += tests/tools/train_shim
tests_tools_train_shim_SOURCES = tests/tools/train_shim.c $(fake_attention) $(fake_runtime) \
	$(muster_train_SOURCES)
tests_tools_train_shim_LDFLAGS = $(AM_LDFLAGS) -Wl,--export-dynamic
tests_tools_train_shim_LDADD = $(trainer_LIBS) libckptd.la libcheckpoint.la
if HAVE_NCCL
tests_tools_train_shim_SOURCES += tests/fakes/fake_nccl.c tests/fakes/fake_nccl.h
tests_tools_train_shim_LDADD += libncclbootstrap.la
endif
tests_tools_train_shim_LDADD += liblaunch.la libcommon.la libcudashim.a -lstdc++
# bench/step_floor likewise.
check_PROGRAMS += tests/tools/floor_shim
tests_tools_floor_shim_SOURCES = tests/tools/train_shim.c $(fake_attention) $(fake_runtime) \
	bench/step_floor.c \
	$(step_floor)
tests_tools_floor_shim_LDFLAGS = $(AM_LDFLAGS) -Wl,--export-dynamic
tests_tools_floor_shim_LDADD = $(trainer_LIBS) libcudashim.a -lstdc++
check_LTLIBRARIES += tests/tools/fake_driver.la tests/tools/fake_cublaslt.la
tests_tools_fake_driver_la_SOURCES = tests/fakes/fake_driver.c
tests_tools_fake_driver_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_tools_fake_cublaslt_la_SOURCES = tests/fakes/fake_cublaslt.c tests/fakes/fake_cublas.c \
	tests/fakes/fake_cublas.h
tests_tools_fake_cublaslt_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_tools_fake_cublaslt_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_tools_fake_cublaslt_la_LIBADD = libcommon.la
endif
endif
EXTRA_DIST += tests/tools/train_shim.c tests/fakes/fake_driver.c tests/fakes/fake_cublaslt.c \
	tests/gpu_train.bats tests/gpu_ranks.bats
check_PROGRAMS += tests/tools/power_cut tests/tools/kill_at
tests_tools_power_cut_LDADD = tests/tools/libpower.la
EXTRA_DIST += tests/power_loss.bats tests/ckptd_kill.bats tests/train_kill.bats tests/lacking.bats
if HAVE_FUSE
check_PROGRAMS += tests/tools/nfs_like
tests_tools_nfs_like_SOURCES = tests/tools/nfs_like.c tests/tools/nfs_node.c tests/tools/nfs_node.h
tests_tools_nfs_like_CFLAGS = $(AM_CFLAGS) $(FUSE_CFLAGS)
tests_tools_nfs_like_LDADD = libcommon.la $(FUSE_LIBS)
endif
EXTRA_DIST += tests/nfs.bats
check_PROGRAMS += tests/tools/ckpt_import
tests_tools_ckpt_import_SOURCES = tests/tools/ckpt_import.c
tests_tools_ckpt_import_LDADD = libcheckpoint.la
check_PROGRAMS += tests/tools/ckptd_writer
tests_tools_ckptd_writer_SOURCES = tests/tools/ckptd_writer.c tests/tools/ckpt_sample.c \
	tests/tools/ckpt_sample.h
tests_tools_ckptd_writer_LDADD = libckptd.la libcheckpoint.la libcommon.la
check_PROGRAMS += tests/tools/ckpt_golden
tests_tools_ckpt_golden_SOURCES = tests/tools/ckpt_golden.c tests/tools/ckpt_sample.c \
	tests/tools/ckpt_sample.h
tests_tools_ckpt_golden_LDADD = libcheckpoint.la
check_PROGRAMS += tests/tools/model_run
tests_tools_model_run_LDADD = $(trainer_LIBS)
check_PROGRAMS += tests/tools/model_logits tests/tools/safetensors_check
tests_tools_model_logits_LDADD = $(trainer_LIBS)
tests_tools_safetensors_check_LDADD = libcheckpoint.la
EXTRA_DIST += tests/ckpt_hf.bats tests/ckpt_hf.py
EXTRA_DIST += tests/documents.bats tests/site.bats tests/lib/documents.bash
EXTRA_DIST += tests/gpt2_torch.bats tests/torch_reference.py \
	tests/batchnorm.bats tests/zero.bats

EXTRA_DIST += tests/eval.bats tests/eval_reference.py tests/sample_text.bats
EXTRA_DIST += tests/generate.bats tests/first_minute.bats
EXTRA_DIST += tests/config.bats tests/front.bats tests/plan.bats tests/report.bats tests/top.bats \
	tests/lib/events.py \
	tests/lib/byte_level.py tests/lib/small_tokenizer.py tests/bpe_reference.py
EXTRA_DIST += tests/trace.bats tests/tools/check_trace.py tests/tools/flip_bits.py \
	tests/watchdog.bats tests/refused.bats
EXTRA_DIST += tests/train.bats tests/elastic.bats tests/mpirun.bats tests/saving.bats \
	tests/small_run.bash

# The runner and the test cluster.
EXTRA_DIST += .ci/run tests/packages.bats tests/run.sh tests/streak.sh tests/streak.tsv \
	tests/run.bats \
	tests/lib/rooms.py tests/lib/walks.py tests/lib/has_torch.bash tests/lib/places.bash \
	tests/lib/wait_for.bash tests/lib/sanitize.bash tests/lib/tap.awk
EXTRA_DIST += tests/cluster/cluster.bats tests/cluster/helpers.bash \
	tests/cluster/plugin.bats tests/cluster/pmi2.bats tests/cluster/environment.bats \
	tests/cluster/world.py tests/cluster/examples.bats tests/cluster/without_plugin.bats \
	tests/cluster/safety.bats tests/cluster/watchdog.bats tests/cluster/containers.bats \
	tests/cluster/job_container.bats \
	tests/cluster/requeue.bats tests/cluster/requeue_later.bats tests/cluster/requeue.bash \
	tests/cluster/probe.c tests/cluster/ring.c tests/cluster/training.bash \
	tests/cluster/preemption.bats tests/cluster/failure.bats tests/cluster/rendezvous.bats \
	tests/cluster/faults.bats tests/cluster/badinput.bats tests/build.bats \
	tests/cluster/ckptd.bats \
	tests/cluster/prologs.bats tests/cluster/network.bats tests/cluster/latency.c \
	tests/cluster/doctor.bats tests/cluster/pains.bats \
	tests/cluster/guards.bats tests/doctor.bats
EXTRA_DIST += tests/lib/tap-skip.sh tests/tokens.bats tests/manuals.bats

# Fuzzing, for as long as one likes: make fuzz FUZZ_SECONDS=600
FUZZ_SECONDS = 20
fuzz:
	$(top_srcdir)/tests/fuzz/run.sh $(FUZZ_SECONDS)
# Faults in the sources: make lint LINT_OPTIONS=--quick
lint:
	MUSTER_BUILD=$(abs_top_builddir) $(top_srcdir)/tests/lint.sh $(LINT_OPTIONS)
lint-flags:
	@echo $(DEFS) -D_GNU_SOURCE -I$(abs_top_builddir) $(JANSSON_CFLAGS) $(XXHASH_CFLAGS) \
	$(CMOCKA_CFLAGS) $(DNNL_CPPFLAGS) $(SLURM_CPPFLAGS) $(PMIX_CFLAGS) $(FUSE_CFLAGS) \
	$(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS)
# What the CUDA kernels take of a card, against tests/ptxas.tsv.
check-ptxas:
	NVCC='$(NVCC)' $(top_srcdir)/tests/ptxas.py
EXTRA_DIST += tests/ptxas.bats tests/ptxas.py tests/ptxas.tsv
.PHONY: check-ptxas fuzz lint lint-flags shim
EXTRA_DIST += tests/lint.sh tests/lint.bats tests/lib/analyzer.h
EXTRA_DIST += tests/sanitize.bats tests/sanitize_threads.bats tests/hardening.bats \
	tests/notice.bats tests/cluster/spot.bats tests/cluster/restart.bats \
	tests/cluster/restart.bash tests/cluster/restart_long.bats tests/lib/metadata_server.py \
	tests/descriptors.bats tests/network.bats tests/cluster/addresses.bats \
	tests/cluster/groups.bats \
	tests/fuzz.bats tests/fuzz/run.sh tests/fuzz/fuzz_input.h tests/fuzz/fuzz_npy.c \
	tests/fuzz/fuzz_tokens.c tests/fuzz/fuzz_attempts.c tests/fuzz/fuzz_checkpoint.c \
	tests/fuzz/fuzz_ckptd_proto.c tests/fuzz/fuzz_comm_conn.c tests/fuzz/fuzz_rank_links.c \
	tests/fuzz/fuzz_step_word.c tests/fuzz/fuzz_opt_config.c tests/fuzz/fuzz_run_table.c \
	tests/fuzz/fuzz_tokenizer.c tests/fuzz/fuzz_spot_reply.c tests/fuzz/fuzz_reach.c \
	tests/fuzz/fuzz_first_end.c tests/fuzz/fuzz_import.c tests/fuzz/fuzz_bootstrap.c \
	tests/fuzz/fuzz_hostlist.c tests/fuzz/fuzz_layout.c tests/fuzz/fuzz_rank_env.c \
	tests/fuzz/fuzz_spank_args.c tests/fuzz/fuzz_owner.c tests/fuzz/fuzz_part.c \
	tests/fuzz/fuzz_pmi2_wire.c tests/fuzz/fuzz_gemm_plans.c tests/fuzz/fuzz_flight.c \
	tests/fuzz/seeds tests/fuzz/dictionaries
# End of tests.mk
