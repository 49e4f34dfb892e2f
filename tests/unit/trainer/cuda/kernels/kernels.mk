# tests/unit/trainer/cuda/kernels/: the unit tests of trainer/cuda/kernels/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_cuda_add
tests_unit_test_cuda_add_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_add.c
tests_unit_test_cuda_add_LDADD = $(shim_LIBS)
unit_tests += tests/unit/test_cuda_attention
tests_unit_test_cuda_attention_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_attention.c \
	tests/unit/trainer/cuda/kernels/cuda_floats.c tests/unit/trainer/cuda/kernels/cuda_floats.h
tests_unit_test_cuda_attention_LDADD = $(shim_LIBS)
unit_tests += tests/unit/test_cuda_cross_entropy
tests_unit_test_cuda_cross_entropy_SOURCES = \
	tests/unit/trainer/cuda/kernels/test_cuda_cross_entropy.c \
	tests/unit/trainer/cuda/kernels/cuda_floats.c tests/unit/trainer/cuda/kernels/cuda_floats.h
tests_unit_test_cuda_cross_entropy_LDADD = $(shim_LIBS)
if HAVE_CUDA
unit_tests += tests/unit/test_gpu_add
tests_unit_test_gpu_add_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_add.c
tests_unit_test_gpu_add_LDADD = $(gpu_LIBS)
unit_tests += tests/unit/test_gpu_attention
tests_unit_test_gpu_attention_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_attention.c \
	tests/unit/trainer/cuda/kernels/cuda_floats.c tests/unit/trainer/cuda/kernels/cuda_floats.h
tests_unit_test_gpu_attention_LDADD = $(gpu_LIBS)
unit_tests += tests/unit/test_gpu_cross_entropy
tests_unit_test_gpu_cross_entropy_SOURCES = \
	tests/unit/trainer/cuda/kernels/test_cuda_cross_entropy.c \
	tests/unit/trainer/cuda/kernels/cuda_floats.c tests/unit/trainer/cuda/kernels/cuda_floats.h
tests_unit_test_gpu_cross_entropy_LDADD = $(gpu_LIBS)
endif
# One op each, with the CPU's as the reference.
kernel_fixture = tests/unit/trainer/cuda/kernels/kernel_fixture.c \
	tests/unit/trainer/cuda/kernels/kernel_fixture.h tests/unit/trainer/cuda/kernels/cuda_floats.c \
	tests/unit/trainer/cuda/kernels/cuda_floats.h tests/unit/trainer/ops/ops_fixture.c \
	tests/unit/trainer/ops/ops_fixture.h
unit_tests += tests/unit/test_cuda_norm
tests_unit_test_cuda_norm_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_norm.c \
	$(kernel_fixture)
tests_unit_test_cuda_norm_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_column_sums
tests_unit_test_cuda_column_sums_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_column_sums.c \
	$(kernel_fixture)
tests_unit_test_cuda_column_sums_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_square_sums
tests_unit_test_cuda_square_sums_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_square_sums.c \
	$(kernel_fixture)
tests_unit_test_cuda_square_sums_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_sum_losses
tests_unit_test_cuda_sum_losses_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_sum_losses.c \
	$(kernel_fixture)
tests_unit_test_cuda_sum_losses_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_adamw
tests_unit_test_cuda_adamw_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_adamw.c \
	$(kernel_fixture)
tests_unit_test_cuda_adamw_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_tree_reduce
tests_unit_test_cuda_tree_reduce_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_tree_reduce.c \
	tests/unit/order/tree_play.h $(kernel_fixture)
tests_unit_test_cuda_tree_reduce_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_embedding
tests_unit_test_cuda_embedding_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_embedding.c \
	$(kernel_fixture)
tests_unit_test_cuda_embedding_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_elements
tests_unit_test_cuda_elements_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_elements.c \
	$(kernel_fixture)
tests_unit_test_cuda_elements_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_difference
tests_unit_test_cuda_difference_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_difference.c \
	$(kernel_fixture)
tests_unit_test_cuda_difference_LDADD = $(shim_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_cuda_batchnorm
tests_unit_test_cuda_batchnorm_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_batchnorm.c \
	$(kernel_fixture)
tests_unit_test_cuda_batchnorm_LDADD = $(shim_LIBS) $(trainer_LIBS)
if HAVE_CUDA
unit_tests += tests/unit/test_gpu_norm
tests_unit_test_gpu_norm_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_norm.c \
	$(kernel_fixture)
tests_unit_test_gpu_norm_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_column_sums
tests_unit_test_gpu_column_sums_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_column_sums.c \
	$(kernel_fixture)
tests_unit_test_gpu_column_sums_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_square_sums
tests_unit_test_gpu_square_sums_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_square_sums.c \
	$(kernel_fixture)
tests_unit_test_gpu_square_sums_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_sum_losses
tests_unit_test_gpu_sum_losses_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_sum_losses.c \
	$(kernel_fixture)
tests_unit_test_gpu_sum_losses_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_adamw
tests_unit_test_gpu_adamw_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_adamw.c \
	$(kernel_fixture)
tests_unit_test_gpu_adamw_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_tree_reduce
tests_unit_test_gpu_tree_reduce_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_tree_reduce.c \
	tests/unit/order/tree_play.h $(kernel_fixture)
tests_unit_test_gpu_tree_reduce_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_embedding
tests_unit_test_gpu_embedding_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_embedding.c \
	$(kernel_fixture)
tests_unit_test_gpu_embedding_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_elements
tests_unit_test_gpu_elements_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_elements.c \
	$(kernel_fixture)
tests_unit_test_gpu_elements_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_difference
tests_unit_test_gpu_difference_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_difference.c \
	$(kernel_fixture)
tests_unit_test_gpu_difference_LDADD = $(gpu_LIBS) $(trainer_LIBS)
unit_tests += tests/unit/test_gpu_batchnorm
tests_unit_test_gpu_batchnorm_SOURCES = tests/unit/trainer/cuda/kernels/test_cuda_batchnorm.c \
	$(kernel_fixture)
tests_unit_test_gpu_batchnorm_LDADD = $(gpu_LIBS) $(trainer_LIBS)
endif
endif
# End of kernels.mk
