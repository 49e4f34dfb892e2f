# tests/unit/trainer/ddp/: the unit tests of trainer/ddp/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_ddp_plan
tests_unit_test_ddp_plan_SOURCES = tests/unit/trainer/ddp/test_ddp_plan.c \
	tests/unit/trainer/ddp/ddp_table.h
tests_unit_test_ddp_plan_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
ddp_world = tests/unit/trainer/ddp/ddp_work.c tests/unit/trainer/ddp/ddp_work.h \
	tests/unit/trainer/ddp/ddp_table.h tests/unit/trainer/comm/world_fixture.c \
	tests/unit/trainer/comm/world_fixture.h
unit_tests += tests/unit/test_ddp_nodes
tests_unit_test_ddp_nodes_SOURCES = tests/unit/trainer/ddp/test_ddp_nodes.c $(ddp_world) \
	$(counting_network)
tests_unit_test_ddp_nodes_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_ddp_SOURCES = tests/unit/trainer/ddp/test_ddp.c $(ddp_world)
tests_unit_test_ddp_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ddp_sum
tests_unit_test_ddp_sum_SOURCES = tests/unit/trainer/ddp/test_ddp_sum.c
tests_unit_test_ddp_sum_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ddp_control
tests_unit_test_ddp_control_SOURCES = tests/unit/trainer/ddp/test_ddp_control.c $(ddp_world)
tests_unit_test_ddp_control_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ddp_zero
tests_unit_test_ddp_zero_SOURCES = tests/unit/trainer/ddp/test_ddp_zero.c \
	tests/unit/trainer/ddp/ddp_table.h tests/unit/trainer/comm/world_fixture.c \
	tests/unit/trainer/comm/world_fixture.h
tests_unit_test_ddp_zero_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_ddp_cuda_SOURCES = tests/unit/trainer/ddp/test_ddp_cuda.c
tests_unit_test_ddp_cuda_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
if HAVE_CUBLAS
if HAVE_NCCL
tests_unit_test_ddp_cuda_SOURCES += $(ddp_world) tests/unit/trainer/model/model_fixture.c \
	tests/unit/trainer/model/model_fixture.h $(fake_gpus)
tests_unit_test_ddp_cuda_LDADD += $(gpus_LIBS)
endif
endif
endif
# End of ddp.mk
