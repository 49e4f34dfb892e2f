# checkpoint/service/: muster-ckptd, the checkpoint service.
libckptd_la_SOURCES += \
	checkpoint/service/ckptd_alive.c checkpoint/service/ckptd_alive.h \
	checkpoint/service/ckptd_already.c checkpoint/service/ckptd_already.h \
	checkpoint/service/ckptd_control.c checkpoint/service/ckptd_control.h \
	checkpoint/service/ckptd_hear.c checkpoint/service/ckptd_hear.h \
	checkpoint/service/ckptd_news.c checkpoint/service/ckptd_news.h \
	checkpoint/service/ckptd_parts.c checkpoint/service/ckptd_parts.h \
	checkpoint/service/ckptd_report.c checkpoint/service/ckptd_report.h \
	checkpoint/service/ckptd_server.c checkpoint/service/ckptd_server.h \
	checkpoint/service/ckptd_session.c checkpoint/service/ckptd_session.h \
	checkpoint/service/ckptd_worker.c checkpoint/service/ckptd_worker.h \
	checkpoint/service/ckptd_worker_decide.c \
	checkpoint/service/ckptd_worker_private.h
bin_PROGRAMS += muster-ckptd
muster_ckptd_SOURCES = checkpoint/service/muster_ckptd.c
muster_ckptd_LDADD = libckptd.la libcheckpoint.la libcommon.la
# End of service.mk
