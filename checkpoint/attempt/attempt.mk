# checkpoint/attempt/: the checkpoint directory during an attempt. muster-train and libmuster use
# it.
noinst_LTLIBRARIES += librun.la
librun_la_SOURCES = \
	checkpoint/attempt/folder.c checkpoint/attempt/folder.h \
	checkpoint/attempt/machine.c checkpoint/attempt/machine.h
# End of attempt.mk
