# trainer/ops/: a device, and the operations that it computes. All of trainer/ but its programs is
# in libtrainer.a; programs that link it link trainer_LIBS.
noinst_LIBRARIES += libtrainer.a
trainer_LIBS = libtrainer.a libtext.la librun.la libcheckpoint.la liblaunch.la liborder.la \
	libtelemetry.la libcommon.la $(CUDNN_LIBS) $(DNNL_LIBS)
libtrainer_a_SOURCES = \
	trainer/ops/device.h \
	trainer/ops/gpu.c trainer/ops/gpu.h \
	trainer/ops/ops.h
# End of ops.mk
