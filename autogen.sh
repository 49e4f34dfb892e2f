#!/bin/sh
# Makes configure and its helpers from configure.ac. Needs autoconf, automake and libtool.
set -e
cd "$(dirname "$0")"
mkdir -p build-aux m4
exec autoreconf --force --install --warnings=all,no-obsolete
