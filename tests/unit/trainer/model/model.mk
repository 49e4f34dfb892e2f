# tests/unit/trainer/model/: the unit tests of trainer/model/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_tensors
tests_unit_test_tensors_SOURCES = tests/unit/trainer/model/test_tensors.c
tests_unit_test_tensors_LDADD = libtrainer.a liborder.la libcommon.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_model
tests_unit_test_model_SOURCES = tests/unit/trainer/model/test_model.c \
	tests/unit/trainer/model/model_fixture.c tests/unit/trainer/model/model_fixture.h
tests_unit_test_model_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
tests_unit_test_model_bits_SOURCES = tests/unit/trainer/model/test_model_bits.c \
	tests/unit/trainer/model/model_fixture.c tests/unit/trainer/model/model_fixture.h
tests_unit_test_model_bits_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_recompute
tests_unit_test_recompute_SOURCES = tests/unit/trainer/model/test_recompute.c \
	tests/unit/trainer/model/model_fixture.c tests/unit/trainer/model/model_fixture.h
tests_unit_test_recompute_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_graph_trial
tests_unit_test_graph_trial_SOURCES = tests/unit/trainer/model/test_graph_trial.c
tests_unit_test_graph_trial_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_batchnorm
tests_unit_test_batchnorm_SOURCES = tests/unit/trainer/model/test_batchnorm.c \
	tests/unit/trainer/model/model_fixture.c tests/unit/trainer/model/model_fixture.h \
	tests/unit/trainer/ops/ops_fixture.c tests/unit/trainer/ops/ops_fixture.h \
	tests/unit/trainer/comm/world_fixture.c tests/unit/trainer/comm/world_fixture.h
tests_unit_test_batchnorm_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
endif
# End of model.mk
