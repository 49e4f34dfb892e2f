# common/: what every other room may use; libc, jansson and xxhash only.
noinst_LTLIBRARIES += libcommon.la
libcommon_la_SOURCES = \
	common/acceptor.c common/acceptor.h \
	common/alone.c common/alone.h \
	common/auto.h \
	common/base64.c common/base64.h \
	common/build_id.c common/build_id.h \
	common/bytes.h \
	common/clock.c common/clock.h \
	common/descriptors.c common/descriptors.h \
	common/err.c common/err.h \
	common/hash.c common/hash.h \
	common/hash_avx2.c \
	common/hash_xxh3.h \
	common/hostlist.c common/hostlist.h \
	common/ident.c common/ident.h \
	common/io.c common/io.h \
	common/last_words.c common/last_words.h \
	common/listen.c common/listen.h \
	common/log.c common/log.h \
	common/node_address.c common/node_address.h \
	common/notice.c common/notice.h \
	common/number.c common/number.h \
	common/opt.c common/opt.h \
	common/opt_config.c common/opt_parse.c \
	common/pages.c common/pages.h \
	common/process.c common/process.h \
	common/progress.c common/progress.h \
	common/record.c common/record.h \
	common/run_as_user.c common/run_as_user.h \
	common/siphash.c common/siphash.h \
	common/installed.c common/installed.h \
	common/spawn.c common/spawn.h \
	common/thread.c common/thread.h
libcommon_la_LIBADD = $(JANSSON_LIBS) $(XXHASH_LIBS)
# End of common.mk
