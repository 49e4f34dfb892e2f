# packaging/: an RPM spec, and debian/, which lies where Debian's tools look for it.
EXTRA_DIST += packaging/muster.spec \
	debian/changelog \
	debian/control \
	debian/copyright \
	debian/libmuster-dev.install \
	debian/libmuster-dev.manpages \
	debian/libmuster0.install \
	debian/libmuster0.symbols \
	debian/muster-ckptd.install \
	debian/muster-ckptd.lintian-overrides \
	debian/muster-ckptd.manpages \
	debian/muster-doc.install \
	debian/muster-doc.lintian-overrides \
	debian/muster-tools.install \
	debian/muster-tools.manpages \
	debian/muster-train.install \
	debian/muster-train.manpages \
	debian/not-installed \
	debian/plugin.lintian-overrides \
	debian/python3-muster.install \
	debian/rules \
	debian/source/format
# End of packaging.mk
