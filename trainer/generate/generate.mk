# trainer/generate/: text from a model on the CPU; muster-generate.
libtrainer_a_SOURCES += \
	trainer/generate/continuation.c trainer/generate/continuation.h \
	trainer/generate/decoder.c trainer/generate/decoder.h \
	trainer/generate/one_line.c trainer/generate/one_line.h \
	trainer/generate/spelling.c trainer/generate/spelling.h \
	trainer/generate/token_choice.c trainer/generate/token_choice.h
bin_PROGRAMS += muster-generate
muster_generate_SOURCES = trainer/generate/muster_generate.c
muster_generate_LDADD = $(trainer_LIBS) libckptcmd.la libcheckpoint.la libcommon.la
# End of generate.mk
