# tests/unit/checkpoint/protocol/: the unit tests of checkpoint/protocol/.
if HAVE_CMOCKA
unit_tests += tests/unit/test_ckptd_proto
tests_unit_test_ckptd_proto_SOURCES = tests/unit/checkpoint/protocol/test_ckptd_proto.c
tests_unit_test_ckptd_proto_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
unit_tests += tests/unit/test_ckptd_socket
tests_unit_test_ckptd_socket_SOURCES = tests/unit/checkpoint/protocol/test_ckptd_socket.c \
	tests/unit/checkpoint/service/ckptd_node.h $(ckptd_fixture)
tests_unit_test_ckptd_socket_LDADD = libckptd.la libcheckpoint.la $(CMOCKA_LIBS)
endif
# End of protocol.mk
