# trainer/tools/: muster-train, muster-eval and muster-tokens.
bin_PROGRAMS += muster-train muster-eval muster-tokens
muster_train_SOURCES = trainer/tools/muster_train.c
muster_train_LDADD = $(trainer_LIBS) libckptd.la libcheckpoint.la liblaunch.la libcommon.la
if HAVE_CUBLAS
muster_train_LDADD += $(cuda_kernels)
if HAVE_NCCL
muster_train_LDADD += libncclbootstrap.la liblaunch.la libcommon.la $(NCCL_RPATH)
endif
endif
muster_eval_SOURCES = trainer/tools/muster_eval.c
muster_eval_LDADD = $(trainer_LIBS) libckptcmd.la libcheckpoint.la libcommon.la
muster_tokens_SOURCES = trainer/tools/muster_tokens.c \
	trainer/tools/text_input.c trainer/tools/text_input.h
muster_tokens_LDADD = libtrainer.a libtext.la libcommon.la
# End of tools.mk
