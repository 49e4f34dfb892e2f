# tests/unit/trainer/cuda/host/: the unit tests of trainer/cuda/host/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_cuda_check
tests_unit_test_cuda_check_SOURCES = tests/unit/trainer/cuda/host/test_cuda_check.c
tests_unit_test_cuda_check_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_cuda_check_LDADD = $(trainer_LIBS) $(CUDA_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_cuda_gemm
tests_unit_test_cuda_gemm_SOURCES = tests/unit/trainer/cuda/host/test_cuda_gemm.c
if HAVE_CUBLAS
tests_unit_test_cuda_gemm_SOURCES += tests/fakes/fake_cublas.c tests/fakes/fake_cublas.h
endif
tests_unit_test_cuda_gemm_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_cuda_gemm_LDADD = $(trainer_LIBS) $(CUDA_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_cuda_tune
tests_unit_test_cuda_tune_SOURCES = tests/unit/trainer/cuda/host/test_cuda_tune.c
tests_unit_test_cuda_tune_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_cuda_tune_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
tests_unit_test_cuda_tune_SOURCES += tests/fakes/fake_cublas.c tests/fakes/fake_cublas.h \
	$(fake_runtime)
tests_unit_test_cuda_tune_LDADD += $(shim_LIBS)
endif
tests_unit_test_ops_cuda_SOURCES = tests/unit/trainer/cuda/host/test_ops_cuda.c
tests_unit_test_ops_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_unit_test_ops_cuda_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
tests_unit_test_ops_cuda_SOURCES += tests/fakes/fake_attention.c tests/fakes/fake_attention.h \
	tests/fakes/fake_cublas.c tests/fakes/fake_cublas.h $(fake_runtime) \
	tests/unit/trainer/model/model_fixture.c tests/unit/trainer/model/model_fixture.h
tests_unit_test_ops_cuda_LDADD += $(shim_LIBS)
endif
EXTRA_DIST += tests/fakes/fake_attention.c tests/fakes/fake_attention.h \
	tests/unit/trainer/cuda/host/test_gpu_attention_cudnn.c
if HAVE_CUBLAS
unit_tests += tests/unit/test_gpu_attention_cudnn
tests_unit_test_gpu_attention_cudnn_SOURCES = \
	tests/unit/trainer/cuda/host/test_gpu_attention_cudnn.c \
	tests/unit/trainer/cuda/host/gpu_noise.c tests/unit/trainer/cuda/host/gpu_noise.h
tests_unit_test_gpu_attention_cudnn_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_unit_test_gpu_attention_cudnn_LDADD = $(trainer_LIBS) $(gpu_LIBS)
endif
# The whole table, op by op.
op_sources = tests/unit/trainer/cuda/host/op_cases.c tests/unit/trainer/cuda/host/op_cases.h \
	tests/unit/trainer/cuda/host/op_run.c tests/unit/trainer/cuda/host/op_run.h \
	tests/unit/trainer/cuda/host/op_device.h
op_stand_ins = $(op_sources) tests/unit/trainer/cuda/host/op_device_host.c \
	tests/fakes/fake_cublas.c tests/fakes/fake_cublas.h $(fake_runtime)
EXTRA_DIST += $(op_stand_ins) tests/unit/trainer/cuda/host/op_device_gpu.c \
	tests/unit/trainer/cuda/host/gpu_noise.c tests/unit/trainer/cuda/host/gpu_noise.h \
	tests/shim/digest.cu tests/shim/digest.h
unit_tests += tests/unit/test_cuda_ops
tests_unit_test_cuda_ops_SOURCES = tests/unit/trainer/cuda/host/test_cuda_ops.c
tests_unit_test_cuda_ops_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_cuda_repeat
tests_unit_test_cuda_repeat_SOURCES = tests/unit/trainer/cuda/host/test_cuda_repeat.c
tests_unit_test_cuda_repeat_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_unit_test_cuda_repeat_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
tests_unit_test_cuda_ops_SOURCES += $(op_stand_ins)
tests_unit_test_cuda_ops_LDADD += $(shim_LIBS)
tests_unit_test_cuda_repeat_SOURCES += $(op_stand_ins) tests/unit/trainer/cuda/host/gpu_noise.c \
	tests/unit/trainer/cuda/host/gpu_noise.h
tests_unit_test_cuda_repeat_LDADD += tests/shim/digest.host.o $(shim_LIBS)
unit_tests += tests/unit/test_gpu_ops
tests_unit_test_gpu_ops_SOURCES = tests/unit/trainer/cuda/host/test_cuda_ops.c $(op_sources) \
	tests/unit/trainer/cuda/host/op_device_gpu.c
tests_unit_test_gpu_ops_LDADD = $(trainer_LIBS) $(gpu_LIBS)
unit_tests += tests/unit/test_gpu_repeat
tests_unit_test_gpu_repeat_SOURCES = tests/unit/trainer/cuda/host/test_cuda_repeat.c $(op_sources) \
	tests/unit/trainer/cuda/host/op_device_gpu.c tests/unit/trainer/cuda/host/gpu_noise.c \
	tests/unit/trainer/cuda/host/gpu_noise.h
tests_unit_test_gpu_repeat_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_unit_test_gpu_repeat_LDADD = tests/shim/digest.o $(trainer_LIBS) $(gpu_LIBS)
endif
unit_tests += tests/unit/test_gemm_plans
tests_unit_test_gemm_plans_SOURCES = tests/unit/trainer/cuda/host/test_gemm_plans.c
tests_unit_test_gemm_plans_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of host.mk
