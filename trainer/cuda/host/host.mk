# trainer/cuda/host/: the GPU and its operations, in libtrainer.a; programs that use them link
# cuda_kernels after trainer_LIBS.
libtrainer_a_SOURCES += trainer/cuda/host/gemm_plans.c trainer/cuda/host/gemm_plans.h
cuda_ops = \
	trainer/cuda/host/attention_choice.c \
	trainer/cuda/host/cublas.c trainer/cuda/host/cublas.h \
	trainer/cuda/host/cuda.c trainer/cuda/host/cuda.h \
	trainer/cuda/host/device_cuda.c trainer/cuda/host/device_cuda.h \
	trainer/cuda/host/finish.c trainer/cuda/host/finish.h \
	trainer/cuda/host/graph.c \
	trainer/cuda/host/comm_stream.c \
	trainer/cuda/host/ops_cuda.c trainer/cuda/host/ops_cuda.h trainer/cuda/host/ops_cuda_private.h \
	trainer/cuda/host/ops_linear.c \
	trainer/cuda/host/ops_passes.c \
	trainer/cuda/host/gemm.c trainer/cuda/host/gemm.h \
	trainer/cuda/host/copy_stream.c trainer/cuda/host/copy_stream.h \
	trainer/cuda/host/tune.c trainer/cuda/host/tune.h \
	trainer/cuda/host/tune_bench.c trainer/cuda/host/tune_bench.h
EXTRA_DIST += trainer/cuda/host/check.c trainer/cuda/host/check.h $(cuda_ops)
EXTRA_DIST += trainer/cuda/host/attention_cudnn.h trainer/cuda/host/attention_cudnn.cc \
	trainer/cuda/host/attention_cudnn_none.c
if HAVE_CUDA
AM_CPPFLAGS += $(CUDA_CPPFLAGS)
libtrainer_a_SOURCES += trainer/cuda/host/check.c trainer/cuda/host/check.h
if HAVE_CUBLAS
libtrainer_a_SOURCES += $(cuda_ops)
if HAVE_CUDNN
AM_CPPFLAGS += $(CUDNN_CPPFLAGS)
libtrainer_a_SOURCES += trainer/cuda/host/attention_cudnn.cc
else
libtrainer_a_SOURCES += trainer/cuda/host/attention_cudnn_none.c
endif
if HAVE_NCCL
AM_CPPFLAGS += $(NCCL_CPPFLAGS)
libtrainer_a_SOURCES += $(comm_nccl)
endif
endif
endif
# End of host.mk
