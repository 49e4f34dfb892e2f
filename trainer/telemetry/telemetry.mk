# trainer/telemetry/: where a rank stands, and what it did when.
libtrainer_a_SOURCES += \
	trainer/telemetry/flight.c trainer/telemetry/flight.h \
	trainer/telemetry/flight_files.c trainer/telemetry/flight_files.h \
	trainer/telemetry/flight_follow.c trainer/telemetry/flight_follow.h \
	trainer/telemetry/flight_read.c \
	trainer/telemetry/flight_table.c trainer/telemetry/flight_table.h \
	trainer/telemetry/trace.c trainer/telemetry/trace.h
# End of telemetry.mk
