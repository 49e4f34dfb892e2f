# tests/unit/checkpoint/format/: the unit tests of checkpoint/format/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_memory_limit
tests_unit_test_memory_limit_SOURCES = tests/unit/checkpoint/format/test_memory_limit.c
tests_unit_test_memory_limit_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_safetensors
tests_unit_test_safetensors_SOURCES = tests/unit/checkpoint/format/test_safetensors.c
tests_unit_test_safetensors_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_manifest
tests_unit_test_manifest_SOURCES = tests/unit/checkpoint/format/test_manifest.c
tests_unit_test_manifest_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_boxes
tests_unit_test_boxes_SOURCES = tests/unit/checkpoint/format/test_boxes.c
tests_unit_test_boxes_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_gpt2
tests_unit_test_gpt2_SOURCES = tests/unit/checkpoint/format/test_gpt2.c
tests_unit_test_gpt2_LDADD = $(trainer_LIBS) $(CMOCKA_LIBS)
unit_tests += tests/unit/test_snapshot_memory
tests_unit_test_snapshot_memory_SOURCES = tests/unit/checkpoint/format/test_snapshot_memory.c
tests_unit_test_snapshot_memory_LDADD = libcheckpoint.la $(CMOCKA_LIBS)
endif
# End of format.mk
