# tests/unit/trainer/comm/: the unit tests of trainer/comm/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_comm tests/unit/test_comm_reduce
comm_world = tests/unit/trainer/comm/summing.c tests/unit/trainer/comm/summing.h \
	tests/unit/trainer/comm/world_fixture.c tests/unit/trainer/comm/world_fixture.h
tests_unit_test_comm_SOURCES = tests/unit/trainer/comm/test_comm.c $(comm_world)
tests_unit_test_comm_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_comm_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=free
tests_unit_test_comm_reduce_SOURCES = tests/unit/trainer/comm/test_comm_reduce.c $(comm_world)
tests_unit_test_comm_reduce_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_comm_failure_SOURCES = tests/unit/trainer/comm/test_comm_failure.c $(comm_world)
tests_unit_test_comm_failure_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_comm_reason_SOURCES = tests/unit/trainer/comm/test_comm_reason.c $(comm_world)
tests_unit_test_comm_reason_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_comm_conn
tests_unit_test_comm_conn_SOURCES = tests/unit/trainer/comm/test_comm_conn.c $(partial_io)
tests_unit_test_comm_conn_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_comm_nccl_SOURCES = tests/unit/trainer/comm/test_comm_nccl.c
tests_unit_test_comm_nccl_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
if HAVE_NCCL
gpus_LIBS = $(trainer_LIBS) libncclbootstrap.la liblaunch.la libcommon.la $(shim_LIBS)
tests_unit_test_comm_nccl_SOURCES += tests/unit/trainer/comm/world_fixture.c \
	tests/unit/trainer/comm/world_fixture.h $(fake_gpus)
tests_unit_test_comm_nccl_LDADD += $(gpus_LIBS)
endif
endif
unit_tests += tests/unit/test_status_exchange
tests_unit_test_status_exchange_SOURCES = tests/unit/trainer/comm/test_status_exchange.c \
	tests/unit/trainer/comm/world_fixture.c tests/unit/trainer/comm/world_fixture.h
tests_unit_test_status_exchange_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of comm.mk
