# trainer/state/: weights, moments and how they are saved.
libtrainer_a_SOURCES += \
	trainer/state/layout.c trainer/state/layout.h \
	trainer/state/offload.c trainer/state/offload.h \
	trainer/state/optimizer.c trainer/state/optimizer.h \
	trainer/state/populate.c trainer/state/populate.h \
	trainer/state/rotation.c trainer/state/rotation.h \
	trainer/state/saver.c trainer/state/saver.h \
	trainer/state/state.c trainer/state/state.h
# End of state.mk
