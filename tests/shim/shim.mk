# tests/shim/: kernels on the host (doc/cuda-shim.md), and the same tests on the GPU.
if HAVE_CMOCKA
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
SHIM_CXXFLAGS = -std=c++17 -Wno-unused-parameter -Wno-unknown-pragmas -ffp-contract=off \
	-march=native
.cu.host.o:
	@$(MKDIR_P) $(@D)
	$(AM_V_CXX)$(CXX) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) -I$(top_srcdir)/tests/shim \
	$(CPPFLAGS) $(AM_CXXFLAGS) $(SHIM_CXXFLAGS) \
		$(CXXFLAGS) -MMD -MF $@.d -x c++ -c -o $@ $<
-include $(cuda_sources:.cu=.o.d) $(cuda_sources:.cu=.host.o.d) tests/shim/samples.host.o.d \
	tests/shim/samples.o.d tests/shim/ptx_samples.host.o.d tests/shim/ptx_samples.o.d \
	tests/shim/digest.host.o.d tests/shim/digest.o.d
CLEANFILES += $(cuda_sources:.cu=.o.d) $(cuda_sources:.cu=.host.o.d) tests/shim/*.o.d
check_PROGRAMS += tests/tools/kernel_fault
tests_tools_kernel_fault_LDADD = tests/shim/samples.host.o libcudashim.a -lstdc++
# All that runs kernels on the host; not beside other targets, which it would make, too.
shim:
	@$(MAKE) $(AM_MAKEFLAGS) tests/tools/kernel_fault \
	`for t in $(unit_tests); do case $$t in */test_cuda_*) echo $$t;; esac; done`
if HAVE_CUDA
check_LIBRARIES += libcudagpu.a
libcudagpu_a_SOURCES = tests/shim/device.h tests/shim/device_gpu.c tests/shim/device_tests.c
libcudagpu_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
gpu_LIBS = libcudagpu.a $(cuda_kernels) $(CMOCKA_LIBS)
endif
EXTRA_DIST += tests/shim/samples.cu tests/shim/samples.h
EXTRA_DIST += tests/shim/ptx_samples.cu tests/shim/ptx_samples.h
endif
# End of shim.mk
