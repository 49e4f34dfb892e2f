# doctor/: muster-doctor.
noinst_LTLIBRARIES += libdoctor.la
libdoctor_la_SOURCES = $(launch_checks) checks/site.c checks/site.h \
	doctor/doctor_dir.c doctor/doctor_dir.h \
	doctor/doctor_meet.c doctor/doctor_meet.h \
	doctor/doctor_print.c doctor/doctor_print.h \
	doctor/doctor_way.c doctor/doctor_way.h \
	doctor/facts_json.c doctor/facts_json.h \
	doctor/facts_network.c \
	doctor/facts_versions.c \
	doctor/site_plugin.c \
	doctor/site_saves.c
# Separate objects, since tests compile some of these files themselves.
libdoctor_la_CPPFLAGS = $(AM_CPPFLAGS)
libdoctor_la_LIBADD = libruns.la liblaunch.la libcommon.la
bin_PROGRAMS += muster-doctor
muster_doctor_SOURCES = doctor/muster_doctor.c
muster_doctor_LDADD = libdoctor.la liblaunch.la libcommon.la
# End of doctor.mk
