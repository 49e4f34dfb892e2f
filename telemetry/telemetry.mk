# telemetry/: where a rank stands, and what it did when; muster-where.
noinst_LTLIBRARIES += libtelemetry.la
libtelemetry_la_SOURCES = \
	telemetry/flight.c telemetry/flight.h \
	telemetry/flight_files.c telemetry/flight_files.h \
	telemetry/flight_follow.c telemetry/flight_follow.h \
	telemetry/flight_read.c \
	telemetry/flight_table.c telemetry/flight_table.h \
	telemetry/trace.c telemetry/trace.h
bin_PROGRAMS += muster-where
muster_where_SOURCES = telemetry/muster_where.c
muster_where_LDADD = libtelemetry.la libcommon.la
# End of telemetry.mk
