# checkpoint/directory/: the checkpoint directory: its owner, its attempts, pins, retention.
libcheckpoint_la_SOURCES += \
	checkpoint/directory/attempts.c checkpoint/directory/attempts.h \
	checkpoint/directory/save_schedule.c checkpoint/directory/save_schedule.h \
	checkpoint/directory/ckpt_dir.c checkpoint/directory/ckpt_dir.h \
	checkpoint/directory/owner.c checkpoint/directory/owner.h \
	checkpoint/directory/pin.c checkpoint/directory/pin.h \
	checkpoint/directory/removable.c checkpoint/directory/removable.h \
	checkpoint/directory/remove.c checkpoint/directory/remove.h \
	checkpoint/directory/retention.c checkpoint/directory/retention.h
# End of directory.mk
