# restart/: steps that are begun again within an allocation; muster-run.
noinst_LTLIBRARIES += librestart.la
librestart_la_SOURCES = restart/command.c restart/command.h restart/nodes.c restart/nodes.h \
	restart/reach.c restart/reach.h restart/step.c restart/step.h \
	plugin/end_channel.c plugin/end_channel.h plugin/first_end.c plugin/first_end.h \
	plugin/task_end.c plugin/task_end.h
# Its own flags keep these objects apart from those of tests.
librestart_la_CPPFLAGS = $(AM_CPPFLAGS)
librestart_la_LIBADD = libcommon.la
bin_PROGRAMS += muster-run
muster_run_SOURCES = restart/muster_run.c
muster_run_LDADD = librestart.la liblaunch.la libcommon.la
# End of restart.mk
