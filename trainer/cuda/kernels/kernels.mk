# trainer/cuda/kernels/: CUDA kernels. nvcc compiles them for the GPU, the C++ compiler for the host
# (tests/shim/); programs that use the former link cuda_kernels. Nothing is fused into a
# multiply-add unless a kernel asks for it, since the bits are promised.
cuda_sources = \
	trainer/cuda/kernels/adamw.cu \
	trainer/cuda/kernels/add.cu \
	trainer/cuda/kernels/attention.cu \
	trainer/cuda/kernels/attention_mma.cu \
	trainer/cuda/kernels/attention_mma_backward.cu \
	trainer/cuda/kernels/attention_plain.cu \
	trainer/cuda/kernels/batchnorm.cu \
	trainer/cuda/kernels/column_sums.cu \
	trainer/cuda/kernels/tree_reduce.cu \
	trainer/cuda/kernels/cross_entropy.cu \
	trainer/cuda/kernels/difference.cu \
	trainer/cuda/kernels/elements.cu \
	trainer/cuda/kernels/embedding.cu \
	trainer/cuda/kernels/norm.cu \
	trainer/cuda/kernels/norm_backward.cu \
	trainer/cuda/kernels/partials.cu \
	trainer/cuda/kernels/square_sums.cu \
	trainer/cuda/kernels/sum_losses.cu \
	trainer/cuda/kernels/token_sort.cu
cuda_headers = \
	trainer/cuda/kernels/adamw.h \
	trainer/cuda/kernels/add.h \
	trainer/cuda/kernels/attention.h \
	trainer/cuda/kernels/attention_shape.h \
	trainer/cuda/kernels/attention_tile.h \
	trainer/cuda/kernels/batchnorm.h \
	trainer/cuda/kernels/bf16.h \
	trainer/cuda/kernels/column_sums.h \
	trainer/cuda/kernels/tree_reduce.h \
	trainer/cuda/kernels/cross_entropy.h \
	trainer/cuda/kernels/difference.h \
	trainer/cuda/kernels/elements.h \
	trainer/cuda/kernels/embedding.h \
	trainer/cuda/kernels/head.h \
	trainer/cuda/kernels/launch.h \
	trainer/cuda/kernels/norm.h \
	trainer/cuda/kernels/pack.h \
	trainer/cuda/kernels/partials.h \
	trainer/cuda/kernels/ptx.h \
	trainer/cuda/kernels/square_sums.h \
	trainer/cuda/kernels/sum_losses.h \
	trainer/cuda/kernels/token_sort.h \
	trainer/cuda/kernels/type.h
EXTRA_DIST += $(cuda_sources) $(cuda_headers)
cuda_kernels =
SUFFIXES = .cu .host.o
if HAVE_CUDA
NVCCFLAGS = -O3 -std=c++17 --fmad=false -Xcompiler -Wall,-fstack-protector-strong
.cu.o:
	@$(MKDIR_P) $(@D)
	$(AM_V_NVCC)$(NVCC) $(NVCC_ARCH) $(NVCCFLAGS) -I$(top_srcdir) -MMD -MF $@.d -c -o $@ $<
AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =
noinst_LIBRARIES += libcudakernels.a
libcudakernels_a_SOURCES = $(cuda_sources)
cuda_kernels += libcudakernels.a $(CUDA_LIBS) -lstdc++
endif
# End of kernels.mk
