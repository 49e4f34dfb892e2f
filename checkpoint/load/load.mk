# checkpoint/load/: opens, reads, checks and compares checkpoints.
libcheckpoint_la_SOURCES += \
	checkpoint/load/ckpt.c checkpoint/load/ckpt.h \
	checkpoint/load/ckpt_check.c checkpoint/load/ckpt_check.h \
	checkpoint/load/ckpt_diff.c checkpoint/load/ckpt_diff.h \
	checkpoint/load/ckpt_place.c checkpoint/load/ckpt_place.h \
	checkpoint/load/ckpt_private.h \
	checkpoint/load/ckpt_read.c \
	checkpoint/load/ckpt_tables.c \
	checkpoint/load/shard.c checkpoint/load/shard.h
# End of load.mk
