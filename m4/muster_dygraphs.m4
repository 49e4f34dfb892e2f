# MUSTER_DYGRAPHS: the charts of muster-report; a source archive has them, elsewhere they are those
# of Debian's libjs-dygraphs. Without them there is no muster-report.
AC_DEFUN([MUSTER_DYGRAPHS], [
  AC_ARG_WITH([dygraphs], [AS_HELP_STRING([--with-dygraphs=DIR],
    [folder of dygraph.min.js, for muster-report [/usr/share/javascript/dygraphs]])])
  report_page=$(cd "$srcdir" && pwd)/runs/page
  AS_CASE([$with_dygraphs],
    [no], [have_dygraphs=no],
    [''|yes], [
      DYGRAPHS=/usr/share/javascript/dygraphs
      AS_IF([test -e "$report_page/dygraphs/dygraph.min.js"], [DYGRAPHS=$report_page/dygraphs])
    ],
    [DYGRAPHS=$with_dygraphs])
  AS_IF([test "x$with_dygraphs" != xno], [
    AS_IF([test -e "$DYGRAPHS/dygraph.min.js" && test -e "$DYGRAPHS/dygraph.min.css"],
      [have_dygraphs=yes], [have_dygraphs=no])
    AS_IF([test "x$have_dygraphs" = xno && test -n "$with_dygraphs"],
      [AC_MSG_ERROR([$DYGRAPHS has no dygraph.min.js and dygraph.min.css])])
  ])
  AC_SUBST([DYGRAPHS])
  AC_DEFINE_UNQUOTED([DYGRAPHS], ["$DYGRAPHS"], [Folder of dygraph.min.js.])
  AC_DEFINE_UNQUOTED([REPORT_SOURCES], ["$report_page"],
    [Folder of the parts of muster-report's page.])
  AM_CONDITIONAL([HAVE_DYGRAPHS], [test "x$have_dygraphs" = xyes])
])
