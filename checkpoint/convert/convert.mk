# checkpoint/convert/: reads GPT-2 from checkpoints, and reads and writes it in the files of Hugging
# Face and of llm.c.
noinst_LTLIBRARIES += libckptcmd.la
libckptcmd_la_SOURCES = \
	checkpoint/convert/ckpt_model.c \
	checkpoint/convert/hf_export.c checkpoint/convert/hf_export.h \
	checkpoint/convert/hf_model.c \
	checkpoint/convert/llmc_model.c \
	checkpoint/convert/model_source.c checkpoint/convert/model_source.h
libckptcmd_la_LIBADD = libruns.la libcheckpoint.la
# End of convert.mk
