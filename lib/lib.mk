# lib/: libmuster, for C programs.
# libmuster contains everything of ours that it needs, so a program links nothing else. It does not
# contain libslurm, which is bound to one release of Slurm.
lib_LTLIBRARIES = libmuster.la
include_HEADERS = lib/muster.h
libmuster_la_SOURCES = lib/muster.h lib/muster_private.h \
	lib/ckpt.c \
	lib/collective.c \
	lib/end.c \
	lib/error.c \
	lib/nccl.c \
	lib/notice.c \
	lib/plan.c lib/plan.h \
	lib/progress.c \
	lib/rank.c \
	lib/resume.c
libmuster_la_CFLAGS = $(MUSTER_CFLAGS)
libmuster_la_LIBADD = librun.la liblaunch.la libckptd.la # which holds libcheckpoint and libcommon
libmuster_la_LDFLAGS = $(AM_LDFLAGS) $(NCCL_RPATH) -version-info 2:0:2 -no-undefined \
	-Wl,--version-script=$(srcdir)/lib/libmuster.lds
libmuster_la_DEPENDENCIES = $(libmuster_la_LIBADD) lib/libmuster.lds
if HAVE_NCCL
libmuster_la_LIBADD += libncclbootstrap.la
endif
pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = lib/muster.pc
EXTRA_DIST += lib/libmuster.lds
# End of lib.mk
