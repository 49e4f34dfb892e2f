# top/: a run as it goes on; muster-top.
noinst_LTLIBRARIES += libtop.la
libtop_la_SOURCES = \
	top/dots.c top/dots.h \
	top/page.c top/page.h \
	top/plain.c top/plain.h \
	top/view.c top/view.h
libtop_la_LIBADD = libruns.la libtelemetry.la
bin_PROGRAMS += muster-top
muster_top_SOURCES = top/muster_top.c top/screen.h top/terminal.h
muster_top_CPPFLAGS = $(AM_CPPFLAGS) $(NCURSES_CFLAGS)
muster_top_LDADD = libtop.la $(NCURSES_LIBS)
if HAVE_NCURSES
muster_top_SOURCES += top/screen.c top/terminal.c
endif
# End of top.mk
