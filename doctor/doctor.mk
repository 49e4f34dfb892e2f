# doctor/: what a launch can have wrong, and muster-doctor.

# Facts, the table of checks, the judge. The plugin takes the same sources.
launch_checks = \
	doctor/check.c doctor/check.h doctor/check_hooks.c doctor/check_node.c doctor/check_site.c doctor/check_task.c \
	doctor/facts.c doctor/facts.h \
	doctor/facts_probe.c doctor/facts_probe.h \
	doctor/findings.c \
	doctor/hooks.c doctor/hooks.h
noinst_LTLIBRARIES += libdoctor.la
libdoctor_la_SOURCES = $(launch_checks) \
	doctor/doctor_dir.c doctor/doctor_dir.h \
	doctor/doctor_meet.c doctor/doctor_meet.h \
	doctor/doctor_print.c doctor/doctor_print.h \
	doctor/doctor_way.c doctor/doctor_way.h \
	doctor/facts_json.c doctor/facts_json.h \
	doctor/facts_network.c \
	doctor/facts_versions.c \
	doctor/site.c doctor/site.h doctor/site_plugin.c doctor/site_saves.c
# Objects of its own: tests build some of these files by themselves.
libdoctor_la_CPPFLAGS = $(AM_CPPFLAGS)
libdoctor_la_LIBADD = liblaunch.la libcommon.la
bin_PROGRAMS += muster-doctor
muster_doctor_SOURCES = doctor/muster_doctor.c
muster_doctor_LDADD = libdoctor.la liblaunch.la libcommon.la
# End of doctor.mk
