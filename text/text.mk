# text/: BPE tokenizers.
noinst_LTLIBRARIES += libtext.la
libtext_la_SOURCES = text/text_encoder.c text/text_encoder.h \
	text/token_list.c text/token_list.h text/tokenizer.h
libtext_la_CPPFLAGS = $(AM_CPPFLAGS) $(TEXT_CFLAGS)
libtext_la_LIBADD = libcommon.la $(TEXT_LIBS)
if HAVE_BPE
libtext_la_SOURCES += \
	text/bpe.c text/bpe.h \
	text/text_split.c text/text_split.h \
	text/tokenizer.c text/tokenizer_private.h \
	text/tokenizer_read.c
else
libtext_la_SOURCES += text/tokenizer_missing.c
endif
# End of text.mk
