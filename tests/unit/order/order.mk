# tests/unit/order/: the unit tests of order/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_philox
tests_unit_test_philox_SOURCES = tests/unit/order/test_philox.c
tests_unit_test_philox_LDADD = liborder.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_sampler
tests_unit_test_sampler_SOURCES = tests/unit/order/test_sampler.c
tests_unit_test_sampler_LDADD = liborder.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_tree
tests_unit_test_tree_SOURCES = tests/unit/order/test_tree.c tests/unit/order/tree_play.h
tests_unit_test_tree_LDADD = liborder.la $(CMOCKA_LIBS)
endif
# End of order.mk
