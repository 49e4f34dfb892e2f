# MUSTER_FUSE: file systems in user space, for the test that is one; without it that test is
# skipped.
AC_DEFUN([MUSTER_FUSE], [
  PKG_CHECK_MODULES([FUSE], [fuse3 >= 3.10], [have_fuse=yes], [have_fuse=no])
  AM_CONDITIONAL([HAVE_FUSE], [test "x$have_fuse" = xyes])
])
