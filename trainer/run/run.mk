# trainer/run/: one attempt of a training, from its options to its end.
libtrainer_a_SOURCES += \
	trainer/run/scaling_hint.c trainer/run/scaling_hint.h \
	trainer/run/mfu.c trainer/run/mfu.h \
	trainer/run/arena_source.c trainer/run/arena_source.h \
	trainer/run/device.c trainer/run/device.h \
	trainer/run/estimate.c trainer/run/estimate.h \
	trainer/run/event_file.c trainer/run/event_file.h \
	trainer/run/metrics.c trainer/run/metrics.h \
	trainer/run/numerics.c trainer/run/numerics.h \
	trainer/run/save_scheduler.c trainer/run/save_scheduler.h \
	trainer/run/prepare.c trainer/run/prepare.h \
	trainer/run/report.c trainer/run/report.h \
	trainer/run/resume.c trainer/run/resume.h \
	trainer/run/run.h \
	trainer/run/async_savers.c trainer/run/async_savers.h \
	trainer/run/sample_text.c trainer/run/sample_text.h \
	trainer/run/settings.c trainer/run/settings.h \
	trainer/run/settings_agree.c trainer/run/settings_agree.h \
	trainer/run/flight_report.c trainer/run/flight_report.h \
	trainer/run/tensorboard.c trainer/run/tensorboard.h \
	trainer/run/threads.c trainer/run/threads.h \
	trainer/run/trace_clock.c trainer/run/trace_clock.h \
	trainer/run/trace_file.c trainer/run/trace_file.h \
	trainer/run/train_loop.c trainer/run/train_loop.h \
	trainer/run/validate.c trainer/run/validate.h \
	trainer/run/world_plan.c trainer/run/world_plan.h
# End of run.mk
