# tests/unit/trainer/state/: the unit tests of trainer/state/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_optimizer
tests_unit_test_optimizer_SOURCES = tests/unit/trainer/state/test_optimizer.c \
	tests/unit/trainer/model/model_fixture.c tests/unit/trainer/model/model_fixture.h
tests_unit_test_optimizer_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_buffer_pool
tests_unit_test_buffer_pool_SOURCES = tests/unit/trainer/state/test_buffer_pool.c
tests_unit_test_buffer_pool_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_layout
tests_unit_test_layout_SOURCES = tests/unit/trainer/state/test_layout.c
tests_unit_test_layout_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
tests_unit_test_step_cuda_SOURCES = tests/unit/trainer/state/test_step_cuda.c
tests_unit_test_step_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_step_cuda_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
tests_unit_test_step_cuda_SOURCES += $(ddp_world) tests/fakes/fake_cublas.c \
	tests/fakes/fake_cublas.h $(fake_runtime) tests/unit/trainer/model/model_fixture.c \
	tests/unit/trainer/model/model_fixture.h
tests_unit_test_step_cuda_LDADD += $(shim_LIBS)
endif
EXTRA_DIST += tests/unit/trainer/state/device_state.h $(fake_runtime)
# Snapshots of a state on the device: over the stand-in, and over the runtime on a GPU.
device_training = tests/unit/trainer/state/device_training.h \
	tests/unit/trainer/state/device_state.h tests/unit/trainer/state/odd_table.h
unit_tests += tests/unit/test_device_snapshot tests/unit/test_cuda_device_snapshot
tests_unit_test_device_snapshot_SOURCES = tests/unit/trainer/state/test_device_snapshot.c \
	$(device_training)
tests_unit_test_device_snapshot_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_device_snapshot_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_cuda_device_snapshot_SOURCES = \
	tests/unit/trainer/state/test_cuda_device_snapshot.c $(device_training)
tests_unit_test_cuda_device_snapshot_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_cuda_device_snapshot_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
tests_unit_test_device_snapshot_SOURCES += tests/fakes/fake_cublas.c tests/fakes/fake_cublas.h \
	$(fake_runtime)
tests_unit_test_device_snapshot_LDADD += $(shim_LIBS)
tests_unit_test_cuda_device_snapshot_SOURCES += tests/fakes/fake_cublas.c \
	tests/fakes/fake_cublas.h $(fake_runtime)
tests_unit_test_cuda_device_snapshot_LDADD += $(shim_LIBS)
unit_tests += tests/unit/test_gpu_device_snapshot
tests_unit_test_gpu_device_snapshot_SOURCES = tests/unit/trainer/state/test_cuda_device_snapshot.c \
	$(device_training) tests/fakes/fake_cublas.c tests/fakes/fake_cublas.h
tests_unit_test_gpu_device_snapshot_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_gpu_device_snapshot_LDADD = libcudagpu.a $(trainer_LIBS) $(cuda_kernels) \
	$(CMOCKA_LIBS)
endif
unit_tests += tests/unit/test_device_memory
tests_unit_test_device_memory_SOURCES = tests/unit/trainer/state/test_device_memory.c \
	tests/fakes/device_memory_ops.c tests/fakes/device_memory_ops.h \
	tests/unit/trainer/model/model_fixture.c tests/unit/trainer/model/model_fixture.h \
	tests/unit/trainer/comm/world_fixture.c tests/unit/trainer/comm/world_fixture.h
tests_unit_test_device_memory_LDADD = $(trainer_LIBS) libcheckpoint.la $(CMOCKA_LIBS)
EXTRA_DIST += $(device_training)
endif
# End of state.mk
