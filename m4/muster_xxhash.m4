# MUSTER_XXHASH: XXH3-128, the hash of every checkpoint byte; required.
AC_DEFUN([MUSTER_XXHASH], [
  PKG_CHECK_MODULES([XXHASH], [libxxhash >= 0.8.0], [],
    [AC_MSG_ERROR([xxhash 0.8 or newer is required: apt-get install libxxhash-dev])])
])
