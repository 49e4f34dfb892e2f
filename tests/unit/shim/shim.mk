# tests/unit/shim/: the unit tests of shim/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_cuda_shim
tests_unit_test_cuda_shim_SOURCES = tests/unit/shim/test_cuda_shim.c
tests_unit_test_cuda_shim_LDADD = tests/shim/samples.host.o $(shim_LIBS)
unit_tests += tests/unit/test_cuda_samples
tests_unit_test_cuda_samples_SOURCES = tests/unit/shim/test_cuda_samples.c
tests_unit_test_cuda_samples_LDADD = tests/shim/samples.host.o $(shim_LIBS)
unit_tests += tests/unit/test_cuda_ptx
tests_unit_test_cuda_ptx_SOURCES = tests/unit/shim/test_cuda_ptx.c
tests_unit_test_cuda_ptx_LDADD = tests/shim/ptx_samples.host.o $(shim_LIBS)
if HAVE_CUDA
unit_tests += tests/unit/test_gpu_samples
tests_unit_test_gpu_samples_SOURCES = tests/unit/shim/test_cuda_samples.c
tests_unit_test_gpu_samples_LDADD = tests/shim/samples.o $(gpu_LIBS)
unit_tests += tests/unit/test_gpu_ptx
tests_unit_test_gpu_ptx_SOURCES = tests/unit/shim/test_cuda_ptx.c
tests_unit_test_gpu_ptx_LDADD = tests/shim/ptx_samples.o $(gpu_LIBS)
endif
endif
# End of shim.mk
