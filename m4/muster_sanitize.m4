# MUSTER_SANITIZE: --enable-sanitize=address,undefined builds everything under those sanitizers.
AC_DEFUN([MUSTER_SANITIZE], [
  AC_ARG_ENABLE([sanitize], [AS_HELP_STRING([--enable-sanitize=LIST],
    [build with -fsanitize=LIST (address,undefined or thread)])], [], [enable_sanitize=no])
  AS_IF([test "x$enable_sanitize" = xyes], [enable_sanitize=address,undefined])
  AS_IF([test "x$enable_sanitize" != xno], [
    CFLAGS="$CFLAGS -fsanitize=$enable_sanitize -fno-omit-frame-pointer"
    CFLAGS="$CFLAGS -fno-sanitize-recover=undefined"
    CXXFLAGS="$CXXFLAGS -fsanitize=$enable_sanitize -fno-omit-frame-pointer"
    LDFLAGS="$LDFLAGS -fsanitize=$enable_sanitize"])
])
