# MUSTER_CUBLAS: --with-cublas=auto|yes|no probes cublasLt beside the CUDA runtime (matrix products
# on the GPU).
AC_DEFUN([MUSTER_CUBLAS], [
  AC_REQUIRE([MUSTER_CUDA])
  AC_ARG_WITH([cublas], [AS_HELP_STRING([--with-cublas=auto|yes|no], [cuBLASLt (auto)])], [],
    [with_cublas=auto])
  have_cublas=no CUBLAS_LIBS=
  AS_IF([test "x$with_cublas" != xno && test $have_cuda = yes], [
    save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"; LIBS="$CUDA_LIBS -lcublasLt $LIBS"
    AC_MSG_CHECKING([for cuBLASLt])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cublasLt.h>]],
      [[cublasLtHandle_t h; return cublasLtCreate(&h) == 0;]])],
      [have_cublas=yes; CUBLAS_LIBS=-lcublasLt])
    AC_MSG_RESULT([$have_cublas])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS])
  AS_IF([test $have_cublas = no && test "x$with_cublas" = xyes],
    [AC_MSG_ERROR([cuBLASLt not found])])
  AS_IF([test $have_cublas = yes], [AC_DEFINE([HAVE_CUBLAS], [1], [cuBLASLt is here])])
  AM_CONDITIONAL([HAVE_CUBLAS], [test $have_cublas = yes])
  AC_SUBST([CUBLAS_LIBS])
])
