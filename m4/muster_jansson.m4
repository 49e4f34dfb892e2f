# MUSTER_JANSSON: JSON for manifests and records; required.
AC_DEFUN([MUSTER_JANSSON], [
  PKG_CHECK_MODULES([JANSSON], [jansson >= 2.12], [],
    [AC_MSG_ERROR([jansson is required: apt-get install libjansson-dev])])
])
