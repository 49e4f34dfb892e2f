# trainer/telemetry/: where a rank stands, and what it did when.
libtrainer_a_SOURCES += \
	trainer/telemetry/standing.c trainer/telemetry/standing.h \
	trainer/telemetry/standing_files.c trainer/telemetry/standing_files.h \
	trainer/telemetry/standing_follow.c trainer/telemetry/standing_follow.h \
	trainer/telemetry/standing_read.c \
	trainer/telemetry/standing_table.c trainer/telemetry/standing_table.h \
	trainer/telemetry/trace.c trainer/telemetry/trace.h
# End of telemetry.mk
