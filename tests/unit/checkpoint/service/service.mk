# tests/unit/checkpoint/service/: the unit tests of checkpoint/service/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_ckptd_news
tests_unit_test_ckptd_news_SOURCES = tests/unit/checkpoint/service/test_ckptd_news.c
tests_unit_test_ckptd_news_LDADD = libckptd.la libcheckpoint.la libcommon.la $(CMOCKA_LIBS)
ckptd_fixture = tests/unit/checkpoint/service/ckptd_fixture.c \
	tests/unit/checkpoint/service/ckptd_fixture.h tests/tools/ckpt_sample.c \
	tests/tools/ckpt_sample.h
unit_tests += tests/unit/test_ckptd_parts
tests_unit_test_ckptd_parts_SOURCES = tests/unit/checkpoint/service/test_ckptd_parts.c
tests_unit_test_ckptd_parts_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
tests_unit_test_ckptd_writers_SOURCES = tests/unit/checkpoint/service/test_ckptd_writers.c \
	$(ckptd_fixture)
tests_unit_test_ckptd_writers_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
tests_unit_test_ckptd_hear_SOURCES = tests/unit/checkpoint/service/test_ckptd_hear.c \
	tests/unit/checkpoint/service/ckptd_node.h $(ckptd_fixture)
tests_unit_test_ckptd_hear_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
tests_unit_test_ckptd_node_SOURCES = tests/unit/checkpoint/service/test_ckptd_node.c \
	tests/unit/checkpoint/service/ckptd_node.h $(ckptd_fixture)
tests_unit_test_ckptd_node_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_session
tests_unit_test_ckptd_session_SOURCES = tests/unit/checkpoint/service/test_ckptd_session.c \
	$(ckptd_fixture)
tests_unit_test_ckptd_session_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_order
tests_unit_test_ckptd_order_SOURCES = tests/unit/checkpoint/service/test_ckptd_order.c \
	tests/unit/checkpoint/service/ckptd_node.h $(ckptd_fixture)
tests_unit_test_ckptd_order_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_trust
tests_unit_test_ckptd_trust_SOURCES = tests/unit/checkpoint/service/test_ckptd_trust.c \
	tests/unit/checkpoint/service/ckptd_node.h $(ckptd_fixture)
tests_unit_test_ckptd_trust_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd
tests_unit_test_ckptd_SOURCES = tests/unit/checkpoint/service/test_ckptd.c $(ckptd_fixture)
tests_unit_test_ckptd_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
endif
# End of service.mk
