# tests/fakes/: stand-ins of CUDA, cuBLASLt, NCCL and others.
# Ranks on GPUs that are none: NCCL, the runtime and cuBLASLt are stand-ins.
fake_gpus = tests/fakes/fake_nccl.c tests/fakes/fake_nccl.h tests/fakes/fake_cublas.c \
	tests/fakes/fake_cublas.h $(fake_runtime)
EXTRA_DIST += tests/fakes/fake_nccl.c tests/fakes/fake_nccl.h
EXTRA_DIST += tests/fakes/fake_cublas.c tests/fakes/fake_cublas.h
fake_runtime = tests/fakes/fake_runtime.c tests/fakes/fake_runtime.h tests/fakes/fake_stream.c \
	tests/fakes/fake_stream.h tests/fakes/fake_pinned.c tests/fakes/fake_pinned.h
EXTRA_DIST += tests/fakes/fake_gpu.c
counting_network = tests/fakes/counting_network.c tests/fakes/counting_network.h
# End of fakes.mk
