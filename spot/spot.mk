# spot/: notices of a cloud that takes a machine away; muster-notice.
noinst_LTLIBRARIES += libspot.la
libspot_la_SOURCES = spot/reply.c spot/reply.h
libspot_la_LIBADD = libcommon.la
if HAVE_CURL
bin_PROGRAMS += muster-notice
muster_notice_SOURCES = spot/muster_notice.c spot/http.c spot/http.h spot/look.c spot/look.h
muster_notice_CPPFLAGS = $(AM_CPPFLAGS) $(CURL_CFLAGS)
muster_notice_LDADD = libspot.la liblaunch.la libcommon.la $(CURL_LIBS)
endif
# End of spot.mk
