# MUSTER_NCCL: --with-nccl=auto|yes|no|DIR probes NCCL (the GPU communicator and its bootstrap).
AC_DEFUN([MUSTER_NCCL], [
  AC_REQUIRE([MUSTER_CUDA])
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl=auto|yes|no|DIR], [NCCL communicator (auto)])],
    [], [with_nccl=auto])
  dnl Programs load NCCL when they need it: from where it was found here, unless the loader knows
  dnl another place first.
  have_nccl=no NCCL_CPPFLAGS= NCCL_LIBS=-lnccl NCCL_RPATH=${cuda_lib:+-Wl,-rpath,$cuda_lib}
  AS_CASE([$with_nccl], [no|yes|auto], [],
    [NCCL_CPPFLAGS="-isystem $with_nccl/include"; NCCL_LIBS="-L$with_nccl/lib -lnccl"
    NCCL_RPATH="-Wl,-rpath,$with_nccl/lib"])
  AS_IF([test "x$with_nccl" != xno && test $have_cuda = yes], [
    save_CPPFLAGS=$CPPFLAGS; save_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS $NCCL_CPPFLAGS"; LIBS="$NCCL_LIBS $CUDA_LIBS $LIBS"
    AC_MSG_CHECKING([for NCCL])
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <nccl.h>]],
      [[ncclUniqueId id; return ncclGetUniqueId(&id) == ncclSuccess;]])],
      [have_nccl=yes])
    AC_MSG_RESULT([$have_nccl])
    CPPFLAGS=$save_CPPFLAGS; LIBS=$save_LIBS])
  AS_IF([test $have_nccl = no && test "x$with_nccl" != xauto && test "x$with_nccl" != xno],
    [AC_MSG_ERROR([NCCL not found (it needs CUDA): --with-nccl=DIR])])
  AS_IF([test $have_nccl = yes], [AC_DEFINE([HAVE_NCCL], [1], [NCCL is here])],
    [NCCL_LIBS= NCCL_RPATH=])
  AM_CONDITIONAL([HAVE_NCCL], [test $have_nccl = yes])
  AC_SUBST([NCCL_CPPFLAGS])
  AC_SUBST([NCCL_LIBS])
  AC_SUBST([NCCL_RPATH])
])
