# order/: what makes a result independent of who computes it.
noinst_LTLIBRARIES += liborder.la
liborder_la_SOURCES = \
	order/philox.c order/philox.h \
	order/sampler.c order/sampler.h \
	order/tree.c order/tree.h
# End of order.mk
