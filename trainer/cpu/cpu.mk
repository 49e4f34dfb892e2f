# trainer/cpu/: the operations on the CPU, by oneDNN and by plain C.
AM_CPPFLAGS += $(DNNL_CPPFLAGS)
libtrainer_a_SOURCES += \
	trainer/cpu/cpu.h \
	trainer/cpu/fast_attention.c \
	trainer/cpu/fast_batchnorm.c \
	trainer/cpu/fast_linear.c \
	trainer/cpu/fast_loss.c \
	trainer/cpu/fast_norm.c \
	trainer/cpu/fast_update.c \
	trainer/cpu/isa.c trainer/cpu/isa.h \
	trainer/cpu/kernels.h \
	trainer/cpu/kernels_avx2.c \
	trainer/cpu/kernels_avx512.c \
	trainer/cpu/kernels_batchnorm.h \
	trainer/cpu/kernels_decode.h \
	trainer/cpu/kernels_default.c \
	trainer/cpu/kernels_gemm.h \
	trainer/cpu/kernels_rows.h \
	trainer/cpu/kernels_tiles.h \
	trainer/cpu/ops_cpu.c \
	trainer/cpu/plain_attention.c \
	trainer/cpu/plain_batchnorm.c \
	trainer/cpu/plain_linear.c \
	trainer/cpu/plain_loss.c \
	trainer/cpu/plain_norm.c \
	trainer/cpu/plain_update.c \
	trainer/cpu/gemm.c trainer/cpu/gemm.h \
	trainer/cpu/vec.h
# End of cpu.mk
