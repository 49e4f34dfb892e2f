# runs/: what a checkpoint directory tells of a run; muster-curve and muster-report.
noinst_LTLIBRARIES += libruns.la
libruns_la_SOURCES = \
	runs/curve.c runs/curve.h \
	runs/gnuplot.c runs/gnuplot.h \
	runs/history.c runs/history.h \
	runs/report.c runs/report.h runs/report_svg.c \
	runs/run.c runs/run.h \
	runs/run_table.c runs/run_table.h \
	runs/scaling.c runs/scaling.h
libruns_la_LIBADD = libcheckpoint.la
bin_PROGRAMS += muster-curve
muster_curve_SOURCES = runs/muster_curve.c
muster_curve_LDADD = libruns.la
if HAVE_DYGRAPHS
bin_PROGRAMS += muster-report
muster_report_SOURCES = runs/muster_report.c runs/report_page.c
muster_report_LDADD = libruns.la
runs/report_page.$(OBJEXT): $(report_parts) $(DYGRAPHS)/dygraph.min.js
# A source archive has what it needs of dygraphs.
report_dist = report-dist
endif
report_parts = $(srcdir)/runs/page/report.css $(srcdir)/runs/page/report.js
EXTRA_DIST += runs/page/report.css runs/page/report.js
report-dist:
	$(MKDIR_P) $(distdir)/runs/page/dygraphs
	cp -L $(DYGRAPHS)/dygraph.min.js $(DYGRAPHS)/dygraph.min.css $(distdir)/runs/page/dygraphs
	if [ -e /usr/share/doc/libjs-dygraphs/copyright ]; then \
		cp /usr/share/doc/libjs-dygraphs/copyright $(distdir)/runs/page/dygraphs; fi
dist-hook: $(report_dist)
# End of runs.mk
