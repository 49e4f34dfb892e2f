# trainer/: muster-train and muster-tokens.
noinst_LIBRARIES += libtrainer.a
libtrainer_a_SOURCES =
# random numbers, tensor table, models, optimizer
libtrainer_a_SOURCES += trainer/batch.h \
	trainer/batchnorm.c trainer/batchnorm.h \
	trainer/model.c trainer/model.h trainer/graph_trial.c trainer/graph_trial.h trainer/model_graph.c trainer/model_graph.h trainer/model_kind.h \
	trainer/model_gpt2.c \
	trainer/model_mlp.c \
	trainer/optimizer.c trainer/optimizer.h \
	trainer/philox.c trainer/philox.h \
	trainer/tensors.c trainer/tensors.h
# the CPU's operations; what links libtrainer.a links trainer_LIBS
AM_CPPFLAGS += $(DNNL_CPPFLAGS)
trainer_LIBS = libtrainer.a librun.la libcheckpoint.la liblaunch.la libcommon.la $(DNNL_LIBS)
libtrainer_a_SOURCES += trainer/ops.h \
	trainer/cpu/cpu.h \
	trainer/cpu/fast_attention.c \
	trainer/cpu/fast_batchnorm.c \
	trainer/cpu/fast_linear.c \
	trainer/cpu/fast_loss.c \
	trainer/cpu/fast_norm.c \
	trainer/cpu/fast_update.c \
	trainer/cpu/kernels.h trainer/cpu/kernels_batchnorm.h trainer/cpu/kernels_product.h \
	trainer/cpu/kernels_rows.h trainer/cpu/kernels_tiles.h \
	trainer/cpu/vec.h \
	trainer/cpu/kernels_avx2.c \
	trainer/cpu/kernels_avx512.c \
	trainer/cpu/kernels_default.c \
	trainer/cpu/isa.c trainer/cpu/isa.h \
	trainer/cpu/ops_cpu.c \
	trainer/cpu/plain_attention.c \
	trainer/cpu/plain_batchnorm.c \
	trainer/cpu/plain_linear.c \
	trainer/cpu/plain_loss.c \
	trainer/cpu/plain_norm.c \
	trainer/cpu/plain_update.c \
	trainer/cpu/product.c trainer/cpu/product.h
# samples and data
libtrainer_a_SOURCES += trainer/sampler.c trainer/sampler.h \
	trainer/dataset.c trainer/dataset.h trainer/dataset_private.h \
	trainer/dataset_table.c \
	trainer/dataset_tokens.c \
	trainer/file_list.c trainer/file_list.h \
	trainer/mapping.c trainer/mapping.h \
	trainer/npy.c trainer/npy.h \
	trainer/prefetch.c \
	trainer/token_file.c trainer/token_file.h \
	trainer/token_writer.c trainer/token_writer.h
bin_PROGRAMS += muster-tokens
muster_tokens_SOURCES = trainer/muster_tokens.c
muster_tokens_LDADD = libtrainer.a libcommon.la
# data parallelism
libtrainer_a_SOURCES += trainer/tree.c trainer/tree.h \
	trainer/comm.c trainer/comm.h trainer/comm_private.h trainer/comm_run.c trainer/comm_provider.h \
	trainer/comm_address.c trainer/comm_address.h \
	trainer/comm_links.c trainer/comm_links.h \
	trainer/comm_op.c trainer/comm_op.h \
	trainer/comm_single.c \
	trainer/ddp.c trainer/ddp.h trainer/ddp_private.h \
	trainer/ddp_control.c \
	trainer/ddp_early.c \
	trainer/ddp_plan.c trainer/ddp_plan.h \
	trainer/ddp_reduce.c \
	trainer/ddp_zero.c trainer/zero_shard.h
if HAVE_GLOO
AM_CPPFLAGS += $(GLOO_CPPFLAGS)
trainer_LIBS += $(GLOO_LIBS)
libtrainer_a_SOURCES += trainer/comm_gloo.cc trainer/comm_gloo.h trainer/comm_gloo_connect.cc trainer/comm_gloo_peers.cc \
	trainer/gloo-headers/gloo/common/memory.h
endif
# the run itself
libtrainer_a_SOURCES += \
	trainer/agree.c trainer/agree.h \
	trainer/curve.c trainer/curve.h \
	trainer/advice.c trainer/advice.h \
	trainer/card.c trainer/card.h \
	trainer/device.c trainer/device.h \
	trainer/estimate.c trainer/estimate.h \
	trainer/feed.c trainer/feed.h \
	trainer/gpu.c trainer/gpu.h \
	trainer/gpu_meet.c trainer/gpu_meet.h \
	trainer/layout.c trainer/layout.h \
	trainer/metrics.c trainer/metrics.h \
	trainer/numerics.c trainer/numerics.h \
	trainer/offload.c trainer/offload.h \
	trainer/pace.c trainer/pace.h \
	trainer/populate.c trainer/populate.h \
	trainer/prepare.c trainer/prepare.h \
	trainer/products.c trainer/products.h \
	trainer/report.c trainer/report.h \
	trainer/resume.c trainer/resume.h \
	trainer/rotation.c trainer/rotation.h \
	trainer/run.h \
	trainer/saver.c trainer/saver.h \
	trainer/savers.c trainer/savers.h \
	trainer/scaling.c trainer/scaling.h \
	trainer/settings.c trainer/settings.h \
	trainer/standing.c trainer/standing.h \
	trainer/standing_files.c trainer/standing_files.h \
	trainer/standing_follow.c trainer/standing_follow.h \
	trainer/standing_read.c \
	trainer/standing_report.c trainer/standing_report.h \
	trainer/standing_table.c trainer/standing_table.h \
	trainer/state.c trainer/state.h \
	trainer/threads.c trainer/threads.h \
	trainer/trace.c trainer/trace.h \
	trainer/trace_clock.c trainer/trace_clock.h \
	trainer/trace_file.c trainer/trace_file.h \
	trainer/train_loop.c trainer/train_loop.h \
	trainer/validate.c trainer/validate.h
bin_PROGRAMS += muster-train
muster_train_SOURCES = trainer/muster_train.c launch/job_state.h
muster_train_LDADD = $(trainer_LIBS) libckptd.la libcheckpoint.la liblaunch.la libcommon.la
if HAVE_SLURM
muster_train_SOURCES += plugin/requeue.c plugin/requeue.h plugin/slurm_compat.h
muster_train_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
muster_train_LDFLAGS = $(AM_LDFLAGS) $(SLURM_LDFLAGS)
muster_train_LDADD += $(SLURM_LIBS)
else
muster_train_SOURCES += launch/job_state_none.c
endif
bin_PROGRAMS += muster-curve
muster_curve_SOURCES = trainer/muster_curve.c
muster_curve_LDADD = $(trainer_LIBS)
bin_PROGRAMS += muster-where
muster_where_SOURCES = trainer/muster_where.c
muster_where_LDADD = libtrainer.a libcommon.la
# CUDA kernels, one line each. nvcc makes them for the GPU, the C++ compiler for the host (tests/shim/); what links the former
# links cuda_kernels. No fused multiply-add unless a kernel asks for it: bits are promised.
cuda_sources =
cuda_headers = trainer/cuda/bf16.h trainer/cuda/launch.h trainer/cuda/ptx.h trainer/cuda/type.h
cuda_sources += trainer/cuda/add.cu
cuda_headers += trainer/cuda/add.h
cuda_sources += trainer/cuda/attention.cu trainer/cuda/attention_mma.cu trainer/cuda/attention_mma_backward.cu trainer/cuda/attention_plain.cu
cuda_headers += trainer/cuda/attention.h trainer/cuda/attention_shape.h trainer/cuda/attention_tile.h
cuda_sources += trainer/cuda/cross_entropy.cu
cuda_headers += trainer/cuda/cross_entropy.h trainer/cuda/head.h
cuda_sources += trainer/cuda/norm.cu trainer/cuda/norm_backward.cu trainer/cuda/partials.cu
cuda_headers += trainer/cuda/norm.h trainer/cuda/pack.h trainer/cuda/partials.h
cuda_sources += trainer/cuda/column_sums.cu
cuda_headers += trainer/cuda/column_sums.h
cuda_sources += trainer/cuda/square_sums.cu
cuda_headers += trainer/cuda/square_sums.h
cuda_sources += trainer/cuda/sum_losses.cu
cuda_headers += trainer/cuda/sum_losses.h
cuda_sources += trainer/cuda/adamw.cu
cuda_headers += trainer/cuda/adamw.h
cuda_sources += trainer/cuda/combine.cu
cuda_headers += trainer/cuda/combine.h
cuda_sources += trainer/cuda/embedding.cu trainer/cuda/token_sort.cu
cuda_headers += trainer/cuda/embedding.h trainer/cuda/token_sort.h
cuda_sources += trainer/cuda/elements.cu
cuda_headers += trainer/cuda/elements.h
cuda_sources += trainer/cuda/difference.cu
cuda_headers += trainer/cuda/difference.h
cuda_sources += trainer/cuda/batchnorm.cu
cuda_headers += trainer/cuda/batchnorm.h
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
# The GPU's host side, in libtrainer.a; what uses it links cuda_kernels behind trainer_LIBS.
cuda_ops = trainer/cuda/cublas.c trainer/cuda/cublas.h trainer/cuda/cuda.h \
	trainer/cuda/graph.c \
	trainer/cuda/lane.c \
	trainer/cuda/ops_cuda.c trainer/cuda/ops_cuda.h \
	trainer/cuda/ops_linear.c \
	trainer/cuda/ops_passes.c \
	trainer/cuda/finish.c trainer/cuda/finish.h \
	trainer/cuda/tune.c trainer/cuda/tune.h \
	trainer/cuda/tune_bench.c trainer/cuda/tune_bench.h \
	trainer/cuda/product.c trainer/cuda/product.h \
	trainer/cuda/side.c trainer/cuda/side.h
comm_nccl = trainer/comm_nccl.c trainer/comm_nccl.h
EXTRA_DIST += trainer/cuda/check.c trainer/cuda/check.h $(cuda_ops)
EXTRA_DIST += trainer/cuda/attention_cudnn.h trainer/cuda/attention_cudnn.cc trainer/cuda/attention_cudnn_none.c
if HAVE_CUDA
AM_CPPFLAGS += $(CUDA_CPPFLAGS)
libtrainer_a_SOURCES += trainer/cuda/check.c trainer/cuda/check.h
if HAVE_CUBLAS
libtrainer_a_SOURCES += $(cuda_ops)
if HAVE_CUDNN
AM_CPPFLAGS += $(CUDNN_CPPFLAGS)
libtrainer_a_SOURCES += trainer/cuda/attention_cudnn.cc
else
libtrainer_a_SOURCES += trainer/cuda/attention_cudnn_none.c
endif
muster_train_LDADD += $(cuda_kernels)
if HAVE_NCCL
AM_CPPFLAGS += $(NCCL_CPPFLAGS)
if HAVE_GLOO
libtrainer_a_SOURCES += $(comm_nccl)
muster_train_LDADD += libncclbootstrap.la liblaunch.la libcommon.la $(NCCL_RPATH)
endif
endif
endif
endif
EXTRA_DIST += $(comm_nccl)
# End of trainer.mk
