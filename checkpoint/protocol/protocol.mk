# checkpoint/protocol/: the messages between the checkpoint service and its clients, and how they
# travel. A program that links libckptd.la links libcheckpoint.la too.
noinst_LTLIBRARIES += libckptd.la
libckptd_la_SOURCES = \
	checkpoint/protocol/ckptd_attach.c checkpoint/protocol/ckptd_attach.h \
	checkpoint/protocol/ckptd_conn.c checkpoint/protocol/ckptd_conn.h \
	checkpoint/protocol/ckptd_fields.c checkpoint/protocol/ckptd_fields.h \
	checkpoint/protocol/ckptd_polls.h \
	checkpoint/protocol/ckptd_proto.c checkpoint/protocol/ckptd_proto.h \
	checkpoint/protocol/ckptd_save.c checkpoint/protocol/ckptd_save.h \
	checkpoint/protocol/ckptd_socket.c checkpoint/protocol/ckptd_socket.h \
	checkpoint/protocol/ckptd_tcp.c checkpoint/protocol/ckptd_tcp.h
libckptd_la_CPPFLAGS = $(AM_CPPFLAGS) -DBINDIR='"$(bindir)"'
libckptd_la_LIBADD = libcheckpoint.la
# End of protocol.mk
