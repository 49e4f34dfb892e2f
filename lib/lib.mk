# lib/: libmuster, for C programs.
# libmuster contains everything of ours that it needs, so a program links nothing else. It does not
# contain libslurm, which is bound to one release of Slurm.
lib_LTLIBRARIES = libmuster.la
include_HEADERS = lib/muster.h
libmuster_la_SOURCES = lib/muster.h lib/muster_private.h \
	lib/arrays.c lib/arrays.h \
	lib/ckpt.c lib/ckpt_open.h \
	lib/collective.c \
	lib/content.c lib/content.h \
	lib/end.c \
	lib/error.c \
	lib/nccl.c \
	lib/notice.c \
	lib/order.c \
	lib/outcomes.c lib/outcomes.h \
	lib/phase.c \
	lib/plan.c lib/plan.h \
	lib/progress.c \
	lib/rank.c \
	lib/resume.c \
	lib/save.c \
	lib/saved.c lib/saved.h \
	lib/tree.c \
	lib/word.c \
	lib/worker.c \
	lib/writers.c lib/writers.h
libmuster_la_CFLAGS = $(MUSTER_CFLAGS)
# libckptd holds libcheckpoint and libcommon.
libmuster_la_LIBADD = librun.la liblaunch.la liborder.la libtelemetry.la libckptd.la
libmuster_la_LDFLAGS = $(AM_LDFLAGS) $(NCCL_RPATH) -version-info 7:0:7 -no-undefined \
	-Wl,--version-script=$(srcdir)/lib/libmuster.lds
libmuster_la_DEPENDENCIES = $(libmuster_la_LIBADD) lib/libmuster.lds
if HAVE_NCCL
libmuster_la_LIBADD += libncclbootstrap.la
endif
pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = lib/muster.pc
EXTRA_DIST += lib/libmuster.lds
# End of lib.mk
