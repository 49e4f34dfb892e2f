# trainer/state/: weights, moments and how they are saved.
libtrainer_a_SOURCES += \
	trainer/state/layout.c trainer/state/layout.h \
	trainer/state/device_snapshot.c trainer/state/device_snapshot.h \
	trainer/state/optimizer.c trainer/state/optimizer.h \
	trainer/state/prefault.c trainer/state/prefault.h \
	trainer/state/buffer_pool.c trainer/state/buffer_pool.h \
	trainer/state/async_saver.c trainer/state/async_saver.h \
	trainer/state/state.c trainer/state/state.h
# End of state.mk
