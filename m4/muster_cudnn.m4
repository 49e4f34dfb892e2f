# MUSTER_CUDNN: cuDNN's attention, beside ours. --with-cudnn-frontend=DIR says where its frontend
# is, --with-cudnn=DIR where cuDNN's own headers are; else they are where the compiler looks. Both
# are headers only: the library is loaded when a run takes it.
AC_DEFUN([MUSTER_CUDNN], [
  AC_REQUIRE([MUSTER_CUBLAS])
  AC_ARG_WITH([cudnn-frontend], [AS_HELP_STRING([--with-cudnn-frontend=DIR],
    [cuDNN's attention: where its frontend 1.x is [where it is found]])],
    [], [with_cudnn_frontend=auto])
  AC_ARG_WITH([cudnn], [AS_HELP_STRING([--with-cudnn=DIR], [where cuDNN 9 is, if not beside CUDA])],
    [], [with_cudnn=])
  have_cudnn=no CUDNN_CPPFLAGS= CUDNN_LIBS=
  AS_CASE([$with_cudnn_frontend], [no|auto], [], [
    AS_IF([test $have_cublas = no], [AC_MSG_ERROR([cuDNN's attention needs CUDA and cuBLASLt])])
    CUDNN_CPPFLAGS="-isystem $with_cudnn_frontend/include"])
  CUDNN_CPPFLAGS="$CUDNN_CPPFLAGS ${with_cudnn:+-isystem $with_cudnn/include}"
  AS_IF([test $have_cublas = yes && test "x$with_cudnn_frontend" != xno], [
    AC_LANG_PUSH([C++])
    save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $CUDNN_CPPFLAGS $CUDA_CPPFLAGS"
    AC_MSG_CHECKING([for cuDNN and its frontend])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cudnn.h>
      #include <cudnn_frontend_version.h>
      #if CUDNN_MAJOR != 9 || CUDNN_FRONTEND_MAJOR_VERSION != 1
      #error
      #endif]], [[cudnnHandle_t handle; (void)handle;]])], [have_cudnn=yes])
    AC_MSG_RESULT([$have_cudnn])
    CPPFLAGS=$save_CPPFLAGS
    AC_LANG_POP([C++])
    AS_IF([test $have_cudnn = no && test "x$with_cudnn_frontend" != xauto],
      [AC_MSG_ERROR([cudnn.h of cuDNN 9 or cudnn_frontend.h 1.x not found: --with-cudnn=DIR, dnl
--with-cudnn-frontend=DIR])])])
  # The frontend is C++, and what links it are programs in C.
  AS_IF([test $have_cudnn = yes], [CUDNN_LIBS=-lstdc++], [CUDNN_CPPFLAGS=])
  AM_CONDITIONAL([HAVE_CUDNN], [test $have_cudnn = yes])
  AC_SUBST([CUDNN_CPPFLAGS])
  AC_SUBST([CUDNN_LIBS])
])
