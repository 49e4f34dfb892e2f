# checkpoint/client/: hands snapshots over to the checkpoint service.
libckptd_la_SOURCES += \
	checkpoint/client/ckptd_client.c checkpoint/client/ckptd_client.h \
	checkpoint/client/ckptd_contact.c checkpoint/client/ckptd_contact.h \
	checkpoint/client/ckptd_entries.c checkpoint/client/ckptd_entries.h \
	checkpoint/client/ckptd_plan.h \
	checkpoint/client/ckptd_process.c checkpoint/client/ckptd_process.h \
	checkpoint/client/ckptd_start.c checkpoint/client/ckptd_start.h
# End of client.mk
