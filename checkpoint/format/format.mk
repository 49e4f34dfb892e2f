# checkpoint/format/: what the files of a checkpoint hold.
noinst_LTLIBRARIES += libcheckpoint.la
libcheckpoint_la_SOURCES = \
	checkpoint/format/boxes.c checkpoint/format/boxes.h \
	checkpoint/format/gpt2.c checkpoint/format/gpt2.h \
	checkpoint/format/manifest.c checkpoint/format/manifest.h \
	checkpoint/format/memory_limit.c checkpoint/format/memory_limit.h \
	checkpoint/format/safetensors.c checkpoint/format/safetensors.h \
	checkpoint/format/snapshot.h \
	checkpoint/format/snapshot_memory.c checkpoint/format/snapshot_memory.h
libcheckpoint_la_LIBADD = libcommon.la $(JANSSON_LIBS) -lm
# End of format.mk
