# MUSTER_TEXT: what BPE tokenizers need; without it tokens are bytes.
AC_DEFUN([MUSTER_TEXT], [
  AC_ARG_WITH([bpe], [AS_HELP_STRING([--with-bpe],
    [BPE tokenizers, with PCRE2 and utf8proc [where they are found]])], [], [with_bpe=auto])
  have_bpe=no
  AS_IF([test "x$with_bpe" != xno], [
    PKG_CHECK_MODULES([TEXT], [libpcre2-8 >= 10.30 libutf8proc >= 2.1], [have_bpe=yes], [
      AS_IF([test "x$with_bpe" = xyes],
        [AC_MSG_ERROR([no PCRE2 or utf8proc: apt-get install libpcre2-dev libutf8proc-dev])])
    ])
  ])
  AS_IF([test "x$have_bpe" = xyes], [AC_DEFINE([HAVE_BPE], [1], [BPE tokenizers can be read.])])
  AM_CONDITIONAL([HAVE_BPE], [test "x$have_bpe" = xyes])
])
