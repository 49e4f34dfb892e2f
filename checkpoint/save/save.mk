# checkpoint/save/: writes a snapshot as a durable checkpoint.
libcheckpoint_la_SOURCES += \
	checkpoint/save/ckpt_commit.c \
	checkpoint/save/ckpt_files.c checkpoint/save/ckpt_files.h \
	checkpoint/save/ckpt_finish.c \
	checkpoint/save/ckpt_part.c checkpoint/save/ckpt_part.h \
	checkpoint/save/ckpt_save.c checkpoint/save/ckpt_save.h \
	checkpoint/save/pending_save.c checkpoint/save/pending_save.h \
	checkpoint/save/shard_plan.c checkpoint/save/shard_plan.h \
	checkpoint/save/shard_write.c checkpoint/save/shard_write.h
# End of save.mk
