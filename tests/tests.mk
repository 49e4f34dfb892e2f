# tests/: unit tests (cmocka, each one program tests/unit/test_NOUN), command and cluster tests (bats).
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
unit_tests += tests/unit/test_comm_failure tests/unit/test_owner tests/unit/test_comm_links
unit_tests += tests/unit/test_ckptd_hear tests/unit/test_ckptd_node tests/unit/test_comm_nccl
unit_tests += tests/unit/test_ops_cuda tests/unit/test_model_bits tests/unit/test_step_cuda
unit_tests += tests/unit/test_err
tests_unit_test_err_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_bytes
tests_unit_test_bytes_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_clock
tests_unit_test_clock_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_hash
tests_unit_test_hash_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_siphash
tests_unit_test_siphash_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_io
tests_unit_test_io_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_log
tests_unit_test_log_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_number
tests_unit_test_number_LDADD = libcommon.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_safetensors
tests_unit_test_safetensors_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_manifest
tests_unit_test_manifest_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_attempts
tests_unit_test_attempts_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_cadence
tests_unit_test_cadence_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckpt
tests_unit_test_ckpt_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
ckpt_fixture = tests/unit/ckpt_fixture.c tests/unit/ckpt_fixture.h tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
unit_tests += tests/unit/test_ckpt_dir
tests_unit_test_ckpt_dir_SOURCES = tests/unit/test_ckpt_dir.c $(ckpt_fixture)
tests_unit_test_ckpt_dir_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_golden
tests_unit_test_golden_SOURCES = tests/unit/test_golden.c tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_unit_test_golden_CPPFLAGS = $(AM_CPPFLAGS) -DSOURCE_DIR='"$(abs_top_srcdir)"'
tests_unit_test_golden_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_damage
tests_unit_test_damage_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckpt_save
tests_unit_test_ckpt_save_SOURCES = tests/unit/test_ckpt_save.c $(ckpt_fixture)
tests_unit_test_ckpt_save_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckpt_part
tests_unit_test_ckpt_part_SOURCES = tests/unit/test_ckpt_part.c $(ckpt_fixture)
tests_unit_test_ckpt_part_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_pin
tests_unit_test_pin_SOURCES = tests/unit/test_pin.c $(ckpt_fixture)
tests_unit_test_pin_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_shard
tests_unit_test_shard_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_removable
tests_unit_test_removable_SOURCES = tests/unit/test_removable.c tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_unit_test_removable_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_shard_write
tests_unit_test_shard_write_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_retention
tests_unit_test_retention_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_shard_plan
tests_unit_test_shard_plan_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_snapshot_memory
tests_unit_test_snapshot_memory_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_memory_limit
tests_unit_test_memory_limit_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
tests_unit_test_owner_SOURCES = tests/unit/test_owner.c tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_unit_test_owner_LDADD = libcheckpoint.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_ckptd_proto
tests_unit_test_ckptd_proto_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_entries
tests_unit_test_ckptd_entries_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_news
tests_unit_test_ckptd_news_LDADD = libckptd.la libcheckpoint.la libcommon.la $(CMOCKA_LIBS)
ckptd_fixture = tests/unit/ckptd_fixture.c tests/unit/ckptd_fixture.h \
	tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
unit_tests += tests/unit/test_ckptd_parts
tests_unit_test_ckptd_parts_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_writers
tests_unit_test_ckptd_writers_SOURCES = tests/unit/test_ckptd_writers.c $(ckptd_fixture)
tests_unit_test_ckptd_writers_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
tests_unit_test_ckptd_hear_SOURCES = tests/unit/test_ckptd_hear.c tests/unit/ckptd_node.h $(ckptd_fixture)
tests_unit_test_ckptd_hear_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
tests_unit_test_ckptd_node_SOURCES = tests/unit/test_ckptd_node.c tests/unit/ckptd_node.h $(ckptd_fixture)
tests_unit_test_ckptd_node_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_session
tests_unit_test_ckptd_session_SOURCES = tests/unit/test_ckptd_session.c $(ckptd_fixture)
tests_unit_test_ckptd_session_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_socket
tests_unit_test_ckptd_socket_SOURCES = tests/unit/test_ckptd_socket.c tests/unit/ckptd_node.h $(ckptd_fixture)
tests_unit_test_ckptd_socket_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_trust
tests_unit_test_ckptd_trust_SOURCES = tests/unit/test_ckptd_trust.c tests/unit/ckptd_node.h $(ckptd_fixture)
tests_unit_test_ckptd_trust_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd
tests_unit_test_ckptd_SOURCES = tests/unit/test_ckptd.c $(ckptd_fixture)
tests_unit_test_ckptd_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_narrow
tests_unit_test_narrow_LDADD = libckptcmd.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_progress
tests_unit_test_progress_LDADD = libckptcmd.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_history
tests_unit_test_history_LDADD = libckptcmd.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_gpt2
tests_unit_test_gpt2_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckpt_diff
tests_unit_test_ckpt_diff_SOURCES = tests/unit/test_ckpt_diff.c tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_unit_test_ckpt_diff_LDADD = libckptcmd.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_acceptor
tests_unit_test_acceptor_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_hostlist
tests_unit_test_hostlist_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_node_address
tests_unit_test_node_address_LDADD = libcommon.la $(CMOCKA_LIBS)
tests_unit_test_node_address_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=getaddrinfo
unit_tests += tests/unit/test_spawn
tests_unit_test_spawn_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_thread
tests_unit_test_thread_LDADD = libcommon.la $(CMOCKA_LIBS)
tests_unit_test_thread_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pthread_create
unit_tests += tests/unit/test_alone
tests_unit_test_alone_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ident
tests_unit_test_ident_LDADD = libcommon.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_gathering
tests_unit_test_gathering_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
tests_unit_test_gathering_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=send -Wl,--wrap=recv
unit_tests += tests/unit/test_put_list
tests_unit_test_put_list_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_roll_call
tests_unit_test_roll_call_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_rdzv
tests_unit_test_rdzv_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
if HAVE_PMIX
tests_unit_test_rdzv_CFLAGS = $(AM_CFLAGS) $(PMIX_CFLAGS)
tests_unit_test_rdzv_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=PMIx_Fence_nb
endif
unit_tests += tests/unit/test_rdzv_pmi2
tests_unit_test_rdzv_pmi2_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_pmi2_wire
tests_unit_test_pmi2_wire_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_base64
tests_unit_test_base64_LDADD = libcommon.la $(CMOCKA_LIBS)

EXTRA_DIST += tests/cluster/libmuster.bats tests/libmuster.bats tests/nccl.bats tests/tools/fake_gpu.c tests/gpu.sh tests/gpu_train.sh tests/gpu_slurm.sh tests/gpu.bats tests/cluster/gpu.bats
unit_tests += tests/unit/test_muster
tests_unit_test_muster_SOURCES = tests/unit/test_muster.c tests/unit/blocked_save.h
tests_unit_test_muster_LDADD = libmuster.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_collective
ranks_fixture = tests/unit/ranks_fixture.c tests/unit/ranks_fixture.h
tests_unit_test_collective_SOURCES = tests/unit/test_collective.c $(ranks_fixture)
tests_unit_test_collective_LDADD = libmuster.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_resume
tests_unit_test_resume_SOURCES = tests/unit/test_resume.c $(ranks_fixture)
tests_unit_test_resume_LDADD = libmuster.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_end
tests_unit_test_end_SOURCES = tests/unit/test_end.c tests/unit/blocked_save.h $(ranks_fixture)
tests_unit_test_end_LDADD = libmuster.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_nccl_exchange
tests_unit_test_nccl_exchange_SOURCES = tests/unit/test_nccl_exchange.c \
	tests/unit/meeting_fixture.c tests/unit/meeting_fixture.h
tests_unit_test_nccl_exchange_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_unit_test_nccl_exchange_LDFLAGS = $(AM_LDFLAGS) $(NCCL_RPATH)
tests_unit_test_nccl_exchange_LDADD = liblaunch.la libcommon.la $(CMOCKA_LIBS)
if HAVE_NCCL
tests_unit_test_nccl_exchange_LDADD += libncclbootstrap.la
unit_tests += tests/unit/test_nccl_bootstrap
tests_unit_test_nccl_bootstrap_SOURCES = tests/unit/test_nccl_bootstrap.c \
	tests/unit/meeting_fixture.c tests/unit/meeting_fixture.h
tests_unit_test_nccl_bootstrap_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_unit_test_nccl_bootstrap_LDFLAGS = $(AM_LDFLAGS) $(NCCL_RPATH)
tests_unit_test_nccl_bootstrap_LDADD = libncclbootstrap.la liblaunch.la libcommon.la $(CMOCKA_LIBS)
endif

unit_tests += tests/unit/test_rank_env
tests_unit_test_rank_env_SOURCES = tests/unit/test_rank_env.c plugin/rank_env.c
tests_unit_test_rank_env_LDADD = libcommon.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_facts
tests_unit_test_facts_LDADD = libdoctor.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_site
tests_unit_test_site_LDADD = libdoctor.la $(CMOCKA_LIBS)
# It looks for a symbol in its own file, as in a plugin's.
tests_unit_test_site_LDFLAGS = $(AM_LDFLAGS) -Wl,--export-dynamic
unit_tests += tests/unit/test_check
tests_unit_test_check_SOURCES = tests/unit/test_check.c tests/unit/check_launch.c tests/unit/check_launch.h
tests_unit_test_check_LDADD = libdoctor.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_hooks
tests_unit_test_hooks_LDADD = libdoctor.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_preflight
tests_unit_test_preflight_SOURCES = tests/unit/test_preflight.c plugin/preflight.c doctor/site_mpi.c
tests_unit_test_preflight_LDADD = libdoctor.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_last_words
tests_unit_test_last_words_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_first_end
tests_unit_test_first_end_SOURCES = tests/unit/test_first_end.c plugin/first_end.c plugin/task_end.c
tests_unit_test_first_end_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_end_channel
tests_unit_test_end_channel_SOURCES = tests/unit/test_end_channel.c $(partial_io) plugin/end_channel.c plugin/first_end.c \
	plugin/task_end.c
tests_unit_test_end_channel_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_task_end
tests_unit_test_task_end_SOURCES = tests/unit/test_task_end.c plugin/task_end.c
tests_unit_test_task_end_LDADD = libcommon.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_run_as_user
tests_unit_test_run_as_user_LDADD = libcommon.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_process
tests_unit_test_process_LDADD = libcommon.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_job_folder
tests_unit_test_job_folder_SOURCES = tests/unit/test_job_folder.c plugin/job_folder.c
tests_unit_test_job_folder_LDADD = libcommon.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_wish
tests_unit_test_wish_SOURCES = tests/unit/test_wish.c plugin/wish.c plugin/job_folder.c
tests_unit_test_wish_LDADD = libcommon.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_job_service
tests_unit_test_job_service_SOURCES = tests/unit/test_job_service.c plugin/job_service.c plugin/job_folder.c
tests_unit_test_job_service_LDADD = libcommon.la $(CMOCKA_LIBS)

if HAVE_SLURM
unit_tests += tests/unit/test_requeue
tests_unit_test_requeue_SOURCES = tests/unit/test_requeue.c plugin/requeue.c
tests_unit_test_requeue_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
tests_unit_test_requeue_LDFLAGS = $(AM_LDFLAGS) $(SLURM_LDFLAGS)
tests_unit_test_requeue_LDADD = libcommon.la $(SLURM_LIBS) $(CMOCKA_LIBS)
endif

unit_tests += tests/unit/test_philox
tests_unit_test_philox_LDADD = libtrainer.a $(CMOCKA_LIBS)
unit_tests += tests/unit/test_tensors
tests_unit_test_tensors_LDADD = libtrainer.a libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_model
tests_unit_test_model_SOURCES = tests/unit/test_model.c tests/unit/model_fixture.c tests/unit/model_fixture.h
tests_unit_test_model_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_model_bits_SOURCES = tests/unit/test_model_bits.c tests/unit/model_fixture.c tests/unit/model_fixture.h
tests_unit_test_model_bits_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_recompute
tests_unit_test_recompute_SOURCES = tests/unit/test_recompute.c tests/unit/model_fixture.c tests/unit/model_fixture.h
tests_unit_test_recompute_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_optimizer
tests_unit_test_optimizer_SOURCES = tests/unit/test_optimizer.c tests/unit/model_fixture.c tests/unit/model_fixture.h
tests_unit_test_optimizer_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)

unit_tests += tests/unit/test_sampler
tests_unit_test_sampler_LDADD = libtrainer.a $(CMOCKA_LIBS)
unit_tests += tests/unit/test_dataset
tests_unit_test_dataset_LDADD = libtrainer.a libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_file_list
tests_unit_test_file_list_LDADD = libtrainer.a libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_prefetch
tests_unit_test_prefetch_LDADD = libtrainer.a libcommon.la $(CMOCKA_LIBS)

unit_tests += tests/unit/test_notice
tests_unit_test_notice_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_tree
tests_unit_test_tree_LDADD = libtrainer.a $(CMOCKA_LIBS)
unit_tests += tests/unit/test_comm
comm_world = tests/unit/summing.c tests/unit/summing.h tests/unit/world_fixture.c tests/unit/world_fixture.h
tests_unit_test_comm_SOURCES = tests/unit/test_comm.c $(comm_world)
tests_unit_test_comm_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_comm_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=free
tests_unit_test_comm_failure_SOURCES = tests/unit/test_comm_failure.c $(comm_world)
tests_unit_test_comm_failure_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_comm_links_SOURCES = tests/unit/test_comm_links.c $(partial_io)
tests_unit_test_comm_links_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ddp_plan
tests_unit_test_ddp_plan_SOURCES = tests/unit/test_ddp_plan.c tests/unit/ddp_table.h
tests_unit_test_ddp_plan_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)

unit_tests += tests/unit/test_ddp
ddp_world = tests/unit/ddp_work.c tests/unit/ddp_work.h tests/unit/ddp_table.h tests/unit/world_fixture.c tests/unit/world_fixture.h
tests_unit_test_ddp_SOURCES = tests/unit/test_ddp.c $(ddp_world)
tests_unit_test_ddp_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ddp_control
tests_unit_test_ddp_control_SOURCES = tests/unit/test_ddp_control.c $(ddp_world)
tests_unit_test_ddp_control_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ddp_zero
tests_unit_test_ddp_zero_SOURCES = tests/unit/test_ddp_zero.c tests/unit/ddp_table.h tests/unit/world_fixture.c \
	tests/unit/world_fixture.h
tests_unit_test_ddp_zero_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)

# Ranks on GPUs that are none: NCCL, the runtime and cuBLASLt are stand-ins.
fake_gpus = tests/unit/fake_nccl.c tests/unit/fake_nccl.h tests/unit/fake_cublas.c tests/unit/fake_cublas.h $(fake_runtime)
tests_unit_test_comm_nccl_SOURCES = tests/unit/test_comm_nccl.c
tests_unit_test_comm_nccl_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ddp_cuda
tests_unit_test_ddp_cuda_SOURCES = tests/unit/test_ddp_cuda.c
tests_unit_test_ddp_cuda_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
if HAVE_NCCL
if HAVE_GLOO
gpus_LIBS = $(trainer_LIBS) libncclbootstrap.la liblaunch.la libcommon.la $(shim_LIBS)
tests_unit_test_comm_nccl_SOURCES += tests/unit/world_fixture.c tests/unit/world_fixture.h $(fake_gpus)
tests_unit_test_comm_nccl_LDADD += $(gpus_LIBS)
tests_unit_test_ddp_cuda_SOURCES += $(ddp_world) tests/unit/model_fixture.c tests/unit/model_fixture.h $(fake_gpus)
tests_unit_test_ddp_cuda_LDADD += $(gpus_LIBS)
endif
endif
endif
EXTRA_DIST += tests/unit/fake_nccl.c tests/unit/fake_nccl.h

unit_tests += tests/unit/test_opt
tests_unit_test_opt_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_pages
tests_unit_test_pages_LDADD = libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_settings
tests_unit_test_settings_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_pace
tests_unit_test_pace_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_rotation
tests_unit_test_rotation_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_layout
tests_unit_test_layout_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_metrics
tests_unit_test_metrics_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ops
tests_unit_test_ops_SOURCES = tests/unit/test_ops.c tests/unit/ops_fixture.c tests/unit/ops_fixture.h
tests_unit_test_ops_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ops_fast
tests_unit_test_ops_fast_SOURCES = tests/unit/test_ops_fast.c tests/unit/ops_fixture.c tests/unit/ops_fixture.h
tests_unit_test_ops_fast_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ops_isa
tests_unit_test_ops_isa_SOURCES = tests/unit/test_ops_isa.c tests/unit/ops_fixture.c tests/unit/ops_fixture.h
tests_unit_test_ops_isa_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ops_threads
tests_unit_test_ops_threads_SOURCES = tests/unit/test_ops_threads.c tests/unit/ops_fixture.c tests/unit/ops_fixture.h
tests_unit_test_ops_threads_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)

# Kernels on the host, by the shim in tests/shim/ (doc/cuda-shim.md), and the same tests on the GPU.
check_LIBRARIES = libcudashim.a
libcudashim_a_SOURCES = tests/shim/block.c tests/shim/block.h \
	tests/shim/cuda_math.h tests/shim/cuda_ptx.h tests/shim/cuda_shim.h tests/shim/cuda_vectors.h \
	tests/shim/device.h tests/shim/device_host.c tests/shim/device_tests.c \
	tests/shim/fiber.c tests/shim/fiber.h \
	tests/shim/grid.c tests/shim/grid.h \
	tests/shim/ptx.c tests/shim/ptx.h \
	tests/shim/shared.c tests/shim/shared.h \
	tests/shim/warp.c tests/shim/warp.h
libcudashim_a_LIBADD = $(cuda_sources:.cu=.host.o)
libcudashim_a_DEPENDENCIES = $(libcudashim_a_LIBADD)
shim_LIBS = libcudashim.a -lstdc++ $(CMOCKA_LIBS)
SHIM_CXXFLAGS = -std=c++17 -Wno-unused-parameter -Wno-unknown-pragmas -ffp-contract=off -march=native
.cu.host.o:
	@$(MKDIR_P) $(@D)
	$(AM_V_CXX)$(CXX) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) -I$(top_srcdir)/tests/shim $(CPPFLAGS) $(AM_CXXFLAGS) $(SHIM_CXXFLAGS) \
		$(CXXFLAGS) -MMD -MF $@.d -x c++ -c -o $@ $<
-include $(cuda_sources:.cu=.o.d) $(cuda_sources:.cu=.host.o.d) tests/shim/samples.host.o.d \
	tests/shim/samples.o.d tests/shim/ptx_samples.host.o.d tests/shim/ptx_samples.o.d \
	tests/shim/digest.host.o.d tests/shim/digest.o.d
CLEANFILES += $(cuda_sources:.cu=.o.d) $(cuda_sources:.cu=.host.o.d) tests/shim/*.o.d
unit_tests += tests/unit/test_cuda_shim
tests_unit_test_cuda_shim_LDADD = tests/shim/samples.host.o $(shim_LIBS)
EXTRA_DIST += tests/shim/samples.cu tests/shim/samples.h
check_PROGRAMS += tests/tools/kernel_fault
tests_tools_kernel_fault_LDADD = tests/shim/samples.host.o libcudashim.a -lstdc++
# All that runs kernels on the host; not beside other targets, which it would make, too.
shim:
	@$(MAKE) $(AM_MAKEFLAGS) tests/tools/kernel_fault `for t in $(unit_tests); do case $$t in */test_cuda_*) echo $$t;; esac; done`
unit_tests += tests/unit/test_cuda_samples
tests_unit_test_cuda_samples_LDADD = tests/shim/samples.host.o $(shim_LIBS)
unit_tests += tests/unit/test_cuda_ptx
tests_unit_test_cuda_ptx_LDADD = tests/shim/ptx_samples.host.o $(shim_LIBS)
EXTRA_DIST += tests/shim/ptx_samples.cu tests/shim/ptx_samples.h
unit_tests += tests/unit/test_cuda_add
tests_unit_test_cuda_add_LDADD = $(shim_LIBS)
unit_tests += tests/unit/test_cuda_attention
tests_unit_test_cuda_attention_SOURCES = tests/unit/test_cuda_attention.c tests/unit/cuda_floats.c tests/unit/cuda_floats.h
tests_unit_test_cuda_attention_LDADD = $(shim_LIBS)
unit_tests += tests/unit/test_cuda_cross_entropy
tests_unit_test_cuda_cross_entropy_SOURCES = tests/unit/test_cuda_cross_entropy.c tests/unit/cuda_floats.c tests/unit/cuda_floats.h
tests_unit_test_cuda_cross_entropy_LDADD = $(shim_LIBS)
if HAVE_CUDA
check_LIBRARIES += libcudagpu.a
libcudagpu_a_SOURCES = tests/shim/device.h tests/shim/device_gpu.c tests/shim/device_tests.c
libcudagpu_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
gpu_LIBS = libcudagpu.a $(cuda_kernels) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_gpu_add
tests_unit_test_gpu_add_SOURCES = tests/unit/test_cuda_add.c
tests_unit_test_gpu_add_LDADD = $(gpu_LIBS)
unit_tests += tests/unit/test_gpu_samples
tests_unit_test_gpu_samples_SOURCES = tests/unit/test_cuda_samples.c
tests_unit_test_gpu_samples_LDADD = tests/shim/samples.o $(gpu_LIBS)
unit_tests += tests/unit/test_gpu_ptx
tests_unit_test_gpu_ptx_SOURCES = tests/unit/test_cuda_ptx.c
tests_unit_test_gpu_ptx_LDADD = tests/shim/ptx_samples.o $(gpu_LIBS)
unit_tests += tests/unit/test_gpu_attention
tests_unit_test_gpu_attention_SOURCES = tests/unit/test_cuda_attention.c tests/unit/cuda_floats.c tests/unit/cuda_floats.h
tests_unit_test_gpu_attention_LDADD = $(gpu_LIBS)
unit_tests += tests/unit/test_gpu_cross_entropy
tests_unit_test_gpu_cross_entropy_SOURCES = tests/unit/test_cuda_cross_entropy.c tests/unit/cuda_floats.c tests/unit/cuda_floats.h
tests_unit_test_gpu_cross_entropy_LDADD = $(gpu_LIBS)
endif

# One op each, with the CPU's as the reference.
kernel_fixture = tests/unit/kernel_fixture.c tests/unit/kernel_fixture.h tests/unit/cuda_floats.c tests/unit/cuda_floats.h \
	tests/unit/ops_fixture.c tests/unit/ops_fixture.h
unit_tests += tests/unit/test_cuda_norm
tests_unit_test_cuda_norm_SOURCES = tests/unit/test_cuda_norm.c $(kernel_fixture)
tests_unit_test_cuda_norm_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_column_sums
tests_unit_test_cuda_column_sums_SOURCES = tests/unit/test_cuda_column_sums.c $(kernel_fixture)
tests_unit_test_cuda_column_sums_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_square_sums
tests_unit_test_cuda_square_sums_SOURCES = tests/unit/test_cuda_square_sums.c $(kernel_fixture)
tests_unit_test_cuda_square_sums_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_sum_losses
tests_unit_test_cuda_sum_losses_SOURCES = tests/unit/test_cuda_sum_losses.c $(kernel_fixture)
tests_unit_test_cuda_sum_losses_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_adamw
tests_unit_test_cuda_adamw_SOURCES = tests/unit/test_cuda_adamw.c $(kernel_fixture)
tests_unit_test_cuda_adamw_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_combine
tests_unit_test_cuda_combine_SOURCES = tests/unit/test_cuda_combine.c $(kernel_fixture)
tests_unit_test_cuda_combine_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_embedding
tests_unit_test_cuda_embedding_SOURCES = tests/unit/test_cuda_embedding.c $(kernel_fixture)
tests_unit_test_cuda_embedding_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_elements
tests_unit_test_cuda_elements_SOURCES = tests/unit/test_cuda_elements.c $(kernel_fixture)
tests_unit_test_cuda_elements_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_difference
tests_unit_test_cuda_difference_SOURCES = tests/unit/test_cuda_difference.c $(kernel_fixture)
tests_unit_test_cuda_difference_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_batchnorm
tests_unit_test_cuda_batchnorm_SOURCES = tests/unit/test_cuda_batchnorm.c $(kernel_fixture)
tests_unit_test_cuda_batchnorm_LDADD = $(shim_LIBS) $(trainer_LIBS)
if HAVE_CUDA
unit_tests += tests/unit/test_gpu_norm
tests_unit_test_gpu_norm_SOURCES = tests/unit/test_cuda_norm.c $(kernel_fixture)
tests_unit_test_gpu_norm_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_column_sums
tests_unit_test_gpu_column_sums_SOURCES = tests/unit/test_cuda_column_sums.c $(kernel_fixture)
tests_unit_test_gpu_column_sums_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_square_sums
tests_unit_test_gpu_square_sums_SOURCES = tests/unit/test_cuda_square_sums.c $(kernel_fixture)
tests_unit_test_gpu_square_sums_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_sum_losses
tests_unit_test_gpu_sum_losses_SOURCES = tests/unit/test_cuda_sum_losses.c $(kernel_fixture)
tests_unit_test_gpu_sum_losses_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_adamw
tests_unit_test_gpu_adamw_SOURCES = tests/unit/test_cuda_adamw.c $(kernel_fixture)
tests_unit_test_gpu_adamw_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_combine
tests_unit_test_gpu_combine_SOURCES = tests/unit/test_cuda_combine.c $(kernel_fixture)
tests_unit_test_gpu_combine_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_embedding
tests_unit_test_gpu_embedding_SOURCES = tests/unit/test_cuda_embedding.c $(kernel_fixture)
tests_unit_test_gpu_embedding_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_elements
tests_unit_test_gpu_elements_SOURCES = tests/unit/test_cuda_elements.c $(kernel_fixture)
tests_unit_test_gpu_elements_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_difference
tests_unit_test_gpu_difference_SOURCES = tests/unit/test_cuda_difference.c $(kernel_fixture)
tests_unit_test_gpu_difference_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_batchnorm
tests_unit_test_gpu_batchnorm_SOURCES = tests/unit/test_cuda_batchnorm.c $(kernel_fixture)
tests_unit_test_gpu_batchnorm_LDADD = $(gpu_LIBS) $(trainer_LIBS)
endif

unit_tests += tests/unit/test_cuda_check
tests_unit_test_cuda_check_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_cuda_check_LDADD = $(trainer_LIBS) $(CUDA_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_cuda_product
tests_unit_test_cuda_product_SOURCES = tests/unit/test_cuda_product.c
if HAVE_CUBLAS
tests_unit_test_cuda_product_SOURCES += tests/unit/fake_cublas.c tests/unit/fake_cublas.h
endif
tests_unit_test_cuda_product_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_cuda_product_LDADD = $(trainer_LIBS) $(CUDA_LIBS) $(CMOCKA_LIBS)
EXTRA_DIST += tests/unit/fake_cublas.c tests/unit/fake_cublas.h
fake_runtime = tests/unit/fake_runtime.c tests/unit/fake_runtime.h tests/unit/fake_stream.c tests/unit/fake_stream.h \
	tests/unit/fake_pinned.c tests/unit/fake_pinned.h
unit_tests += tests/unit/test_cuda_tune
tests_unit_test_cuda_tune_SOURCES = tests/unit/test_cuda_tune.c
tests_unit_test_cuda_tune_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_cuda_tune_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
tests_unit_test_cuda_tune_SOURCES += tests/unit/fake_cublas.c tests/unit/fake_cublas.h $(fake_runtime)
tests_unit_test_cuda_tune_LDADD += $(shim_LIBS)
endif
tests_unit_test_ops_cuda_SOURCES = tests/unit/test_ops_cuda.c
tests_unit_test_ops_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_ops_cuda_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
tests_unit_test_ops_cuda_SOURCES += tests/unit/fake_attention.c tests/unit/fake_attention.h \
	tests/unit/fake_cublas.c tests/unit/fake_cublas.h $(fake_runtime) \
	tests/unit/model_fixture.c tests/unit/model_fixture.h
tests_unit_test_ops_cuda_LDADD += $(shim_LIBS)
endif
EXTRA_DIST += tests/unit/fake_attention.c tests/unit/fake_attention.h tests/unit/test_gpu_attention_cudnn.c
if HAVE_CUBLAS
unit_tests += tests/unit/test_gpu_attention_cudnn
tests_unit_test_gpu_attention_cudnn_SOURCES = tests/unit/test_gpu_attention_cudnn.c tests/unit/gpu_noise.c tests/unit/gpu_noise.h
tests_unit_test_gpu_attention_cudnn_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_unit_test_gpu_attention_cudnn_LDADD = $(trainer_LIBS) $(gpu_LIBS)
endif
# The whole table, op by op.
op_sources = tests/unit/op_cases.c tests/unit/op_cases.h tests/unit/op_run.c tests/unit/op_run.h tests/unit/op_device.h
op_stand_ins = $(op_sources) tests/unit/op_device_host.c tests/unit/fake_cublas.c tests/unit/fake_cublas.h $(fake_runtime)
EXTRA_DIST += $(op_stand_ins) tests/unit/op_device_gpu.c tests/unit/gpu_noise.c tests/unit/gpu_noise.h tests/shim/digest.cu tests/shim/digest.h
unit_tests += tests/unit/test_cuda_ops
tests_unit_test_cuda_ops_SOURCES = tests/unit/test_cuda_ops.c
tests_unit_test_cuda_ops_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_cuda_repeat
tests_unit_test_cuda_repeat_SOURCES = tests/unit/test_cuda_repeat.c
tests_unit_test_cuda_repeat_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_unit_test_cuda_repeat_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
tests_unit_test_cuda_ops_SOURCES += $(op_stand_ins)
tests_unit_test_cuda_ops_LDADD += $(shim_LIBS)
tests_unit_test_cuda_repeat_SOURCES += $(op_stand_ins) tests/unit/gpu_noise.c tests/unit/gpu_noise.h
tests_unit_test_cuda_repeat_LDADD += tests/shim/digest.host.o $(shim_LIBS)
unit_tests += tests/unit/test_gpu_ops
tests_unit_test_gpu_ops_SOURCES = tests/unit/test_cuda_ops.c $(op_sources) tests/unit/op_device_gpu.c
tests_unit_test_gpu_ops_LDADD = $(trainer_LIBS) $(gpu_LIBS)
unit_tests += tests/unit/test_gpu_repeat
tests_unit_test_gpu_repeat_SOURCES = tests/unit/test_cuda_repeat.c $(op_sources) tests/unit/op_device_gpu.c tests/unit/gpu_noise.c \
	tests/unit/gpu_noise.h
tests_unit_test_gpu_repeat_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_unit_test_gpu_repeat_LDADD = tests/shim/digest.o $(trainer_LIBS) $(gpu_LIBS)
endif
tests_unit_test_step_cuda_SOURCES = tests/unit/test_step_cuda.c
tests_unit_test_step_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_step_cuda_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
tests_unit_test_step_cuda_SOURCES += $(ddp_world) tests/unit/fake_cublas.c tests/unit/fake_cublas.h $(fake_runtime) \
	tests/unit/model_fixture.c tests/unit/model_fixture.h
tests_unit_test_step_cuda_LDADD += $(shim_LIBS)
endif
EXTRA_DIST += tests/unit/device_state.h $(fake_runtime)
# Snapshots of a state on the device: over the stand-in, and over the runtime on a GPU.
device_training = tests/unit/device_training.h tests/unit/device_state.h tests/unit/odd_table.h
unit_tests += tests/unit/test_offload tests/unit/test_cuda_offload
tests_unit_test_offload_SOURCES = tests/unit/test_offload.c $(device_training)
tests_unit_test_offload_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_offload_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_cuda_offload_SOURCES = tests/unit/test_cuda_offload.c $(device_training)
tests_unit_test_cuda_offload_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_cuda_offload_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
tests_unit_test_offload_SOURCES += tests/unit/fake_cublas.c tests/unit/fake_cublas.h $(fake_runtime)
tests_unit_test_offload_LDADD += $(shim_LIBS)
tests_unit_test_cuda_offload_SOURCES += tests/unit/fake_cublas.c tests/unit/fake_cublas.h $(fake_runtime)
tests_unit_test_cuda_offload_LDADD += $(shim_LIBS)
unit_tests += tests/unit/test_gpu_offload
tests_unit_test_gpu_offload_SOURCES = tests/unit/test_cuda_offload.c $(device_training) tests/unit/fake_cublas.c tests/unit/fake_cublas.h
tests_unit_test_gpu_offload_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_gpu_offload_LDADD = libcudagpu.a $(trainer_LIBS) $(cuda_kernels) $(CMOCKA_LIBS)
endif
EXTRA_DIST += $(device_training)
unit_tests += tests/unit/test_gpu
tests_unit_test_gpu_SOURCES = tests/unit/test_gpu.c tests/unit/meeting_fixture.c tests/unit/meeting_fixture.h
tests_unit_test_gpu_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ops_trace
tests_unit_test_ops_trace_SOURCES = tests/unit/test_ops_trace.c bench/ops_trace.c bench/ops_trace.h \
	tests/unit/model_fixture.c tests/unit/model_fixture.h
tests_unit_test_ops_trace_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
EXTRA_DIST += tests/bench_gpu.bats
unit_tests += tests/unit/test_card
tests_unit_test_card_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_graph_trial
tests_unit_test_graph_trial_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_estimate
tests_unit_test_estimate_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)

unit_tests += tests/unit/test_products
tests_unit_test_products_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_remote
tests_unit_test_remote_SOURCES = tests/unit/test_remote.c tests/unit/remote_ops.c tests/unit/remote_ops.h \
	tests/unit/model_fixture.c tests/unit/model_fixture.h tests/unit/world_fixture.c tests/unit/world_fixture.h
tests_unit_test_remote_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_advice
tests_unit_test_advice_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)

unit_tests += tests/unit/test_feed
tests_unit_test_feed_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)

unit_tests += tests/unit/test_batchnorm
tests_unit_test_batchnorm_SOURCES = tests/unit/test_batchnorm.c tests/unit/model_fixture.c tests/unit/model_fixture.h \
	tests/unit/ops_fixture.c tests/unit/ops_fixture.h tests/unit/world_fixture.c tests/unit/world_fixture.h
tests_unit_test_batchnorm_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_validate
tests_unit_test_validate_SOURCES = tests/unit/test_validate.c tests/unit/model_fixture.c tests/unit/model_fixture.h \
	tests/unit/world_fixture.c tests/unit/world_fixture.h
tests_unit_test_validate_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)

unit_tests += tests/unit/test_agree
tests_unit_test_agree_SOURCES = tests/unit/test_agree.c tests/unit/world_fixture.c tests/unit/world_fixture.h
tests_unit_test_agree_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_scaling
tests_unit_test_scaling_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_standing
tests_unit_test_standing_LDADD = libtrainer.a libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_trace
tests_unit_test_trace_SOURCES = tests/unit/test_trace.c tests/unit/world_fixture.c tests/unit/world_fixture.h
tests_unit_test_trace_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)

check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
endif

EXTRA_DIST += tests/unit/threads_sample.h
EXTRA_DIST += tests/unit/files.h tests/unit/hang.h tests/unit/quiet.h tests/unit/skip_main.h tests/unit/odd_table.h tests/unit/ports.h tests/golden tests/checkpoint_kill.bats tests/ckpt_command.bats tests/fuzz/fuzz_manifest.c tests/fuzz/fuzz_safetensors.c

# What bats files run.
check_PROGRAMS += tests/tools/ckpt_writer
tests_tools_ckpt_writer_SOURCES = tests/tools/ckpt_writer.c tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_tools_ckpt_writer_LDADD = libcheckpoint.la
partial_io = tests/tools/partial_io.c tests/tools/partial_io.h
check_LTLIBRARIES = tests/tools/partial_io.la
tests_tools_partial_io_la_SOURCES = $(partial_io)
tests_tools_partial_io_la_CPPFLAGS = $(AM_CPPFLAGS) '-DPARTIAL_IO_OURS="$(prefix)/","$(abs_top_builddir)/"'
tests_tools_partial_io_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
check_LTLIBRARIES += tests/tools/libpower.la tests/tools/power_loss.la tests/tools/test_filter.la tests/tools/slow_steps.la
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
tests_tools_spank_faulty_la_LDFLAGS = $(spank_muster_la_LDFLAGS) -shared -rpath /nowhere $(wrap)spank_args_parse \
	$(wrap)spank_srun_init $(wrap)spank_srun_post_opt $(wrap)spank_srun_exit $(wrap)spank_alloc_init $(wrap)spank_alloc_post_opt \
	$(wrap)spank_stepd_init $(wrap)spank_stepd_post_opt $(wrap)spank_stepd_user_init $(wrap)spank_stepd_task_init \
	$(wrap)spank_stepd_task_exit $(wrap)spank_job_prolog $(wrap)spank_job_epilog \
	$(wrap)fork $(wrap)pipe2 $(wrap)socket $(wrap)mmap $(wrap)memfd_create $(wrap)mkdirat $(wrap)fchown $(wrap)unlinkat \
	$(wrap)calloc $(wrap)malloc $(wrap)realloc $(wrap)getpwuid_r $(wrap)setresuid $(wrap)setgroups $(wrap)dlsym $(wrap)execve \
	$(wrap)spank_option_register $(wrap)spank_getenv $(wrap)spank_setenv $(wrap)spank_job_control_setenv $(wrap)spank_get_item
tests_tools_spank_faulty_la_DEPENDENCIES = $(spank_muster_la_DEPENDENCIES)
endif
# muster-train, some of whose ranks err.
check_PROGRAMS += tests/tools/train_faulty
tests_tools_train_faulty_SOURCES = tests/tools/train_faulty.c $(muster_train_SOURCES)
tests_tools_train_faulty_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
tests_tools_train_faulty_LDFLAGS = $(AM_LDFLAGS) $(SLURM_LDFLAGS) -Wl,--wrap=sampler_at
tests_tools_train_faulty_LDADD = $(muster_train_LDADD)
if HAVE_CUBLAS
if HAVE_CMOCKA
# muster-train on a GPU that is the host.
check_PROGRAMS += tests/tools/train_shim
tests_tools_train_shim_SOURCES = tests/tools/train_shim.c $(fake_runtime) $(muster_train_SOURCES)
tests_tools_train_shim_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
tests_tools_train_shim_LDFLAGS = $(AM_LDFLAGS) $(SLURM_LDFLAGS) -Wl,--export-dynamic
tests_tools_train_shim_LDADD = $(trainer_LIBS) libckptd.la libcheckpoint.la
if HAVE_NCCL
tests_tools_train_shim_SOURCES += tests/unit/fake_nccl.c tests/unit/fake_nccl.h
tests_tools_train_shim_LDADD += libncclbootstrap.la
endif
tests_tools_train_shim_LDADD += liblaunch.la libcommon.la libcudashim.a $(SLURM_LIBS) -lstdc++
# bench/step_floor likewise.
check_PROGRAMS += tests/tools/floor_shim
tests_tools_floor_shim_SOURCES = tests/tools/train_shim.c $(fake_runtime) bench/step_floor.c $(step_floor)
tests_tools_floor_shim_LDFLAGS = $(AM_LDFLAGS) -Wl,--export-dynamic
tests_tools_floor_shim_LDADD = $(trainer_LIBS) libcudashim.a -lstdc++
check_LTLIBRARIES += tests/tools/fake_driver.la tests/tools/fake_cublaslt.la
tests_tools_fake_driver_la_SOURCES = tests/tools/fake_driver.c
tests_tools_fake_driver_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_tools_fake_cublaslt_la_SOURCES = tests/tools/fake_cublaslt.c tests/unit/fake_cublas.c tests/unit/fake_cublas.h
tests_tools_fake_cublaslt_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_tools_fake_cublaslt_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_tools_fake_cublaslt_la_LIBADD = libcommon.la
endif
endif
EXTRA_DIST += tests/tools/train_shim.c tests/tools/fake_driver.c tests/tools/fake_cublaslt.c tests/gpu_train.bats tests/gpu_ranks.bats
check_PROGRAMS += tests/tools/power_cut tests/tools/kill_at
tests_tools_power_cut_LDADD = tests/tools/libpower.la
EXTRA_DIST += tests/power_loss.bats tests/ckptd_kill.bats tests/train_kill.bats
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
tests_tools_ckptd_writer_SOURCES = tests/tools/ckptd_writer.c tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_tools_ckptd_writer_LDADD = libckptd.la libcheckpoint.la libcommon.la
check_PROGRAMS += tests/tools/ckpt_golden
tests_tools_ckpt_golden_SOURCES = tests/tools/ckpt_golden.c tests/tools/ckpt_sample.c tests/tools/ckpt_sample.h
tests_tools_ckpt_golden_LDADD = libcheckpoint.la
check_PROGRAMS += tests/tools/model_run
tests_tools_model_run_LDADD = $(trainer_LIBS)
check_PROGRAMS += tests/tools/model_logits tests/tools/safetensors_check
tests_tools_model_logits_LDADD = $(trainer_LIBS)
tests_tools_safetensors_check_LDADD = libcheckpoint.la
EXTRA_DIST += tests/ckpt_hf.bats tests/ckpt_hf.py
EXTRA_DIST += tests/readme.bats tests/gpt2_torch.bats tests/torch_reference.py tests/batchnorm.bats tests/zero.bats

EXTRA_DIST += tests/trace.bats tests/tools/check_trace.py tests/tools/flip_bits.py tests/watchdog.bats
EXTRA_DIST += tests/train.bats tests/elastic.bats tests/mpirun.bats tests/saving.bats tests/small_run.bash

# The runner and the test cluster.
EXTRA_DIST += .ci/run tests/run.sh tests/streak.sh tests/streak.tsv tests/run.bats tests/packages.txt tests/lib/packages.sh tests/lib/plain_path.sh \
	tests/lib/has_torch.bash tests/lib/wait_for.bash tests/lib/sanitize.bash tests/lib/tap.awk
EXTRA_DIST += \
	tests/cluster/cluster tests/cluster/cluster.bats tests/cluster/helpers.bash \
	tests/cluster/plugin.bats tests/cluster/pmi2.bats tests/cluster/environment.bats tests/cluster/world.py tests/cluster/examples.bats \
	tests/cluster/without_plugin.bats tests/cluster/safety.bats tests/cluster/watchdog.bats tests/cluster/containers.bats \
	tests/cluster/requeue.bats tests/cluster/requeue_later.bats tests/cluster/requeue.bash \
	tests/cluster/probe.c tests/cluster/ring.c tests/cluster/training.bash \
	tests/cluster/preemption.bats tests/cluster/failure.bats tests/cluster/rendezvous.bats tests/cluster/faults.bats tests/cluster/badinput.bats tests/build.bats \
	tests/cluster/ckptd.bats tests/cluster/prologs.bats tests/cluster/network.bats tests/cluster/latency.c tests/cluster/lib/network.sh tests/cluster/doctor.bats tests/cluster/pains.bats tests/cluster/guards.bats tests/doctor.bats \
	tests/cluster/lib/common.sh tests/cluster/lib/config.sh tests/cluster/lib/daemons.sh \
	tests/cluster/lib/links.sh tests/cluster/lib/space-init.sh tests/cluster/lib/space.sh tests/cluster/lib/users.sh
EXTRA_DIST += tests/lib/tsan-gloo.txt tests/lib/tap-skip.sh tests/tokens.bats tests/manuals.bats

# Fuzzing, for as long as one likes: make fuzz FUZZ_SECONDS=600
FUZZ_SECONDS = 20
fuzz:
	$(top_srcdir)/tests/fuzz/run.sh $(FUZZ_SECONDS)
.PHONY: fuzz shim
EXTRA_DIST += tests/sanitize.bats tests/sanitize_threads.bats tests/hardening.bats tests/descriptors.bats tests/network.bats tests/cluster/addresses.bats tests/cluster/groups.bats tests/fuzz.bats tests/fuzz/run.sh tests/fuzz/fuzz_input.h tests/fuzz/fuzz_npy.c tests/fuzz/fuzz_tokens.c \
	tests/fuzz/fuzz_attempts.c tests/fuzz/fuzz_checkpoint.c tests/fuzz/fuzz_ckptd_proto.c tests/fuzz/fuzz_comm_links.c tests/fuzz/fuzz_first_end.c tests/fuzz/fuzz_import.c \
	tests/fuzz/fuzz_gathering.c tests/fuzz/fuzz_hostlist.c tests/fuzz/fuzz_layout.c tests/fuzz/fuzz_rank_env.c tests/fuzz/fuzz_spank_args.c \
	tests/fuzz/fuzz_owner.c tests/fuzz/fuzz_part.c tests/fuzz/fuzz_pmi2_wire.c tests/fuzz/fuzz_products.c tests/fuzz/fuzz_standing.c tests/fuzz/seeds \
	tests/fuzz/dictionaries
# End of tests.mk
