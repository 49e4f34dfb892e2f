# trainer/comm/: the communicator and its providers.
libtrainer_a_SOURCES += \
	trainer/comm/status_exchange.c trainer/comm/status_exchange.h \
	trainer/comm/comm.c trainer/comm/comm.h \
	trainer/comm/comm_collective.c \
	trainer/comm/comm_conn.c trainer/comm/comm_conn.h \
	trainer/comm/comm_dry_run.c trainer/comm/comm_dry_run.h \
	trainer/comm/comm_failure.c \
	trainer/comm/comm_private.h \
	trainer/comm/comm_provider.h \
	trainer/comm/comm_run.c \
	trainer/comm/comm_single.c \
	trainer/comm/comm_tcp.c trainer/comm/comm_tcp.h \
	trainer/comm/comm_tcp_peers.c \
	trainer/comm/gpu_meet.c trainer/comm/gpu_meet.h
comm_nccl = trainer/comm/comm_nccl.c trainer/comm/comm_nccl.h
EXTRA_DIST += $(comm_nccl)
# End of comm.mk
