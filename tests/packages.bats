#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The packages: they build from the sources and from the archive of `make dist`, lintian has nothing
# to say, and in a Debian of their own all programs start, srun loads the plugin, and nothing is
# left of them after their removal. The tests build on each other. They need root and Debian's
# mirror.
# bats file_tags=long

load lib/places
load lib/wait_for
bats_require_minimum_version 1.5.0

RELEASE=$(sed -n 's/^Package: muster-slurm-plugin-//p' "$MUSTER_TOP/debian/control")
SYSTEM=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null)
PLUGIN=/usr/lib/$SYSTEM/muster/slurm-$RELEASE
# shellcheck source=/dev/null
DEBIAN=$(. /etc/os-release && echo "${VERSION_CODENAME-}")

setup() {
    local tool
    [ "$(id -u)" = 0 ] || skip "needs root, for a Debian of its own"
    for tool in dh dh_python3 lintian mmdebstrap rpmbuild; do
        command -v $tool >/dev/null || skip "no $tool here: tests/packages.txt names its package"
    done
    # shellcheck disable=SC2016
    [[ $(dpkg-query -W -f '${Version}' libslurm-dev 2>/dev/null) = "$RELEASE".* ]] ||
        skip "debian/control is for Slurm $RELEASE, and libslurm-dev here for another, or missing"
    unset CMOCKA_MESSAGE_OUTPUT MAKEFLAGS
    DEB_BUILD_OPTIONS=parallel=$(nproc)
    export DEB_BUILD_OPTIONS ROOT=$BATS_FILE_TMPDIR/root
    cd "$BATS_FILE_TMPDIR"
}

# build_debian FOLDER: builds Debian's packages of the sources in FOLDER, beside it.
build_debian() {
    (cd "$1" && dpkg-buildpackage -us -uc -b) >"$1.log" 2>&1 || { tail -n 30 "$1.log"; return 1; }
}

# The packages that were built from the sources, without those of debug symbols.
built() { find debian -maxdepth 1 -name '*.deb' ! -name '*-dbgsym_*' | sort; }
built_names() { built | sed 's|.*/||; s/_.*//' | sort | paste -sd ' '; }

@test "Debian's packages build from the sources, and lintian has nothing to say" {
    mkdir -p debian/source
    (cd "$MUSTER_TOP" && git ls-files -z | tar --null -T - -cf -) | tar -C debian/source -xf -
    # Their version is that of the sources.
    [ "$(dpkg-parsechangelog -l debian/source/debian/changelog -S Version)" = \
        "$(sed -n 's/^AC_INIT(.*\[\(.*\)\])/\1/p' debian/source/configure.ac)" ]
    build_debian debian/source
    built
    [ "$(built_names)" = "libmuster-dev libmuster0 muster muster-ckptd muster-doc \
muster-slurm-plugin-$RELEASE muster-tools muster-train python3-muster" ]
    # lintian leaves files in its TMPDIR.
    mkdir tmp
    run env TMPDIR="$PWD/tmp" lintian --pedantic --fail-on error,warning,pedantic debian/*.changes
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "another release of Slurm is refused with the remedy, and debian/rules release takes it" {
    local copy=$BATS_TEST_TMPDIR/copy slurm=$BATS_TEST_TMPDIR/slurm
    mkdir -p "$copy" "$slurm/include/slurm"
    cp -r "$MUSTER_TOP/debian" "$copy/debian"
    echo '#define SLURM_VERSION_NUMBER 0x170b02' >"$slurm/include/slurm/slurm_version.h"
    cd "$copy"
    SLURM_DIR=$slurm run ! debian/rules override_dh_auto_configure
    echo "$output"
    [[ $output = *"debian/control names Slurm $RELEASE, and the headers in "*" are of '23.11':"* ]]
    SLURM_DIR=$slurm debian/rules release
    grep -qx 'Package: muster-slurm-plugin-23.11' debian/control
    ! grep -F "$RELEASE" debian/control || false
    # Nothing else has changed.
    diff <(sed "s/$RELEASE/23.11/g" "$MUSTER_TOP/debian/control") debian/control
}

@test "only the plugin's package is bound to a release of Slurm, in folders of its own" {
    local package file bound=0
    for package in $(built); do
        dpkg-deb -x "$package" "$BATS_TEST_TMPDIR/${package##*/}"
    done
    cd "$BATS_TEST_TMPDIR"
    while IFS= read -r -d '' file; do
        readelf -d "$file" 2>/dev/null | grep -q 'NEEDED.*libslurm' || continue
        echo "$file"
        [[ $file = *muster-slurm-plugin-"$RELEASE"_*"$PLUGIN"/* ]]
        bound=$((bound + 1))
    done < <(find . -type f -print0)
    [ "$bound" -eq 2 ]
    # Two such packages have no file in common.
    cd muster-slurm-plugin-*
    find . ! -type d
    [ "$(find . ! -type d | grep -cvF "$RELEASE")" -eq 0 ]
    [ "$(stat -c %a ".$PLUGIN"/muster-{first-node,requeue} | sort -u)" = 711 ]
    grep -x "optional $PLUGIN/spank_muster.so .*" usr/share/doc/*/examples/plugstack.conf
    cd "$BATS_FILE_TMPDIR"
    package=$(built | grep slurm-plugin)
    # It runs nothing when it is installed, and is for libslurm of one release.
    [ "$(dpkg-deb -I "$package" | grep -cE '(pre|post)(inst|rm)|triggers')" = 0 ]
    dpkg-deb -f "$package" Depends | grep "libslurm[0-9]* (>= $RELEASE.*), libslurm[0-9]* (<< "
}

# ---- a Debian of their own ----

# The names of all packages that ours want, but for our own and those that only Suggests names.
wanted() {
    local package
    for package in $(built); do
        dpkg-deb -f "$package" Depends | tr , '\n'
    done | sed 's/^ *//; s/[ (:|].*//' | grep -vE '^$|muster' | sort -u
}

# Where this machine gets Debian's packages from.
sources() {
    grep -lsE "^(Suites: *|deb .* )$DEBIAN( |\$)" /etc/apt/sources.list \
        /etc/apt/sources.list.d/*.{list,sources}
}

# in_root COMMAND…: with a /proc and a /dev/shm that end with it.
in_root() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child sh -c 'mount -t proc proc "$ROOT/proc" &&
        mount -t tmpfs -o mode=1777 shm "$ROOT/dev/shm" && exec chroot "$ROOT" "$@"' in_root \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C.UTF-8 "$@"
}
as_user() { in_root setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

# All files of the root with their contents, but for what dpkg and ld.so keep about packages.
files() {
    (cd "$ROOT" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./debs -o -path ./tmp \
        -o -path ./var/tmp -o -path ./var/lib/dpkg -o -path ./var/log -o -path ./var/cache \
        -o -path ./etc/ld.so.cache -o -name __pycache__ \) -prune -o \
        \( -type f -exec cksum {} + -o -printf '%p\n' \) | sort)
}

make_root() {
    local list
    # Slurm comes with a plugstack.conf.
    list=$(wanted | paste -sd ,)$(sed -n 's/^\(cluster\|quickstart\) */,/p' \
        "$MUSTER_TOP/tests/packages.txt" | tr -d '\n')
    # shellcheck disable=SC2046
    mmdebstrap --variant=apt --include="$list,libpmix2,pkg-config" \
        "$DEBIAN" "$ROOT" $(sources) >root.log 2>&1 || {
        tail -n 15 root.log
        grep -q 'Temporary failure\|Could not\|Failed to fetch' root.log &&
            skip "couldn't reach Debian's mirror"
        return 1
    }
    mkdir -p "$ROOT/debs"
    # shellcheck disable=SC2046
    cp $(built) "$ROOT/debs"
    # What srun needs to know to print its options.
    printf '%s\n' ClusterName=none SlurmctldHost=localhost NodeName=localhost \
        'PartitionName=all Nodes=ALL' >"$ROOT/etc/slurm/slurm.conf"
}

@test "installed in a Debian of their own, every program starts, for a user too" {
    local program name
    make_root
    files >before
    in_root sh -c 'dpkg -i /debs/*.deb' >install.log 2>&1 || { cat install.log; return 1; }
    # No configuration has changed, Slurm's least of all.
    diff <(grep ' \./etc/' before) <(files | grep ' \./etc/')
    for program in $(in_root sh -c 'echo /usr/bin/muster*'); do
        name=${program##*/}
        echo "$name"
        run -0 as_user "$program" --version
        [[ $output = *" $(dpkg-deb -f debian/muster_*.deb Version)" ]]
        run -0 as_user "$program" --help
        [ -n "$output" ]
        [ "$name" = muster ] || [ -e "$ROOT/usr/share/man/man1/$name.1.gz" ] ||
            [ -e "$ROOT/usr/share/man/man8/$name.8.gz" ]
    done
    # No package has been forgotten that has a program.
    diff <(in_root sh -c 'cd /usr/bin && ls muster*') <(cd "$MUSTER_PREFIX/bin" && ls muster*)
    run -0 as_user muster
    [[ $output = *"train "* && $output = *"doctor "* ]]
    run -0 as_user /usr/libexec/muster-requeue --help
    run -0 as_user "$PLUGIN/muster-requeue" --version
    run -2 as_user "$PLUGIN/muster-first-node"
    [[ $output = "usage: muster-first-node "* ]]
    run -0 as_user python3 -c 'import muster, muster._lib; print(muster._lib.path)'
    [ "$output" = libmuster.so.0 ]
    run -0 in_root pkg-config --modversion muster
}

@test "srun loads the plugin by the line of its example, and only then" {
    [ -e "$ROOT$PLUGIN/spank_muster.so" ] || skip "nothing is installed"
    run -0 in_root srun --help
    [[ $output != *--muster* ]]
    cp "$ROOT/etc/slurm/plugstack.conf" plugstack
    cat "$ROOT/usr/share/doc/muster-slurm-plugin-$RELEASE/examples/plugstack.conf" \
        >>"$ROOT/etc/slurm/plugstack.conf"
    run -0 in_root srun --help
    cp plugstack "$ROOT/etc/slurm/plugstack.conf"
    echo "$output" | tail -n 12
    [[ $output = *--muster* ]]
}

@test "the first minute runs from the packages" {
    [ -e "$ROOT/usr/bin/muster-train" ] || skip "nothing is installed"
    run timeout $((10 * HANG)) unshare --net bash -c "$(declare -f in_root as_user)
        as_user env MUSTER_FIRST_MINUTE_STEPS=1000 \
            /usr/share/doc/muster/examples/first-minute.sh"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output = *"all 1000 losses and the final weights are equal, bit for bit"* ]]
    echo "# $(grep 'the first loss' <<<"$output")" >&3
    rm -rf "$ROOT"/var/tmp/muster-first-minute-*
}

# As a machine of its own would: a copy of the root becomes "/", since what joins a namespace comes
# to the "/" of that.
as_machine() {
    unshare -m bash -e -c '
        mount --make-rprivate / && mount --bind "$0" "$0" && cd "$0"
        mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev
        mkdir -p old && pivot_root . old && cd / && umount -l /old
        export HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
        unset TMPDIR
        exec "$@"' "$@"
}

@test "the quickstart runs from the packages, with the plugin for the Slurm that it installs" {
    [ -e "$ROOT/usr/bin/muster-train" ] || skip "nothing is installed"
    cp -a "$ROOT" machine
    cp /etc/resolv.conf machine/etc/
    run timeout $((20 * HANG)) bash -c "$(declare -f as_machine)
        as_machine $PWD/machine /usr/share/doc/muster/examples/quickstart.sh" 3>&-
    echo "$output"
    [ "$status" -eq 0 ]
    [[ ${lines[-1]} = "quickstart: PASS: 2 preemptions, "* ]]
    rm -rf --one-file-system machine
}

@test "nothing is left of them after their removal" {
    [ -e "$ROOT/usr/bin/muster-train" ] || skip "nothing is installed"
    local packages
    packages=$(built_names)
    # shellcheck disable=SC2016
    in_root sh -c 'for p in '"$packages"'; do dpkg -L $p; done' | sort -u >listed
    in_root sh -c "dpkg -r $packages" >remove.log 2>&1 || { cat remove.log; return 1; }
    ! grep -i warning remove.log || false
    # There is no configuration for a purge to remove.
    run -1 in_root sh -c "dpkg-query -W $packages 2>/dev/null"
    [ -z "$output" ]
    files >after
    diff before after
    # Nor of what Python has compiled.
    run find "$ROOT" -xdev -name '*muster*' ! -path "$ROOT/debs/*"
    echo "$output"
    [ -z "$output" ]
    while read -r path; do
        [ ! -f "$ROOT$path" ] || { echo "$path" && return 1; }
    done < <(grep muster listed)
}

# ---- the archive, and RPMs ----

rpms() { find rpm/RPMS -name '*.rpm' | sort; }

# The archive that the build from the sources makes.
archive() { echo "$BATS_FILE_TMPDIR"/debian/source/debian/build/users/muster-*.tar.xz; }

@test "Debian's packages build from the archive of make dist, too" {
    [ -d debian/source/debian/build/users ] || skip "nothing was built"
    make -s -C debian/source/debian/build/users dist >dist.log 2>&1 || { cat dist.log; return 1; }
    mkdir archive && tar -C archive -xf "$(archive)"
    build_debian archive/muster-*
    diff <(built | sed 's|.*/||') <(cd archive && find . -name '*.deb' ! -name '*-dbgsym_*' |
        sed 's|.*/||' | sort)
    rm -rf archive
}

@test "RPMs build from the archive of make dist" {
    [ -e "$(archive)" ] || skip "there is no archive"
    # Debian's names are not those that the spec requires.
    rpmbuild -ta --nodeps --define "_topdir $PWD/rpm" --define "_tmppath $PWD/rpm" \
        --define "_smp_mflags -j$(nproc)" \
        "$(archive)" >rpm.log 2>&1 || { tail -n 30 rpm.log; return 1; }
    rpms
    [ "$(rpms | sed 's|.*/||; s/-[0-9.]*-1.*//' | sort | paste -sd ' ')" = "libmuster-devel \
libmuster0 muster muster-ckptd muster-doc muster-slurm-plugin-$RELEASE muster-tools muster-train \
python3-muster" ]
}

# Of a list of files, the names of those whose folders have the same name on both systems.
programs_and_texts() {
    grep -E '/(bin|libexec|include|muster|man[0-9]|completions)/' |
        grep -vE '/$|/lintian/|/(changelog|copyright)' | sed 's|.*/||; s/\.gz$//' | sort -u
}

@test "the RPMs have what Debian's packages have, and only the plugin's links libslurm" {
    local package name files
    [ -d rpm/RPMS ] || skip "nothing was built"
    for package in $(rpms); do
        name=$(rpm -qp --qf '%{NAME}' "$package")
        files=$(rpm -qplv "$package")
        echo "$name"
        [ "$(rpm -qpl "$package" | grep -c ^/etc)" = 0 ]
        if [[ $name = muster-slurm-plugin-* ]]; then
            rpm -qp --requires "$package" | grep '^libslurm\.so\.'
            grep "/muster/slurm-$RELEASE/spank_muster.so\$" <<<"$files"
            [ "$(grep -cE '^-rwx--x--x .*/muster-(requeue|first-node)$' <<<"$files")" = 2 ]
            # Nothing of it is where another release's would be, but for the folder of all.
            [ "$(grep -v '^d' <<<"$files" | grep -cv "$RELEASE")" = 0 ]
        else
            [ "$(rpm -qp --requires "$package" | grep -c libslurm)" = 0 ]
        fi
        [ "$name" != muster-ckptd ] || grep '^-rwx--x--x .*/usr/bin/muster-ckptd$' <<<"$files"
    done
    diff <(for package in $(built); do
        dpkg-deb --fsys-tarfile "$package" | tar -t
    done | programs_and_texts) <(for package in $(rpms); do
        rpm -qplv "$package" | awk '!/^d/ { print $9 }'
    done | programs_and_texts)
}
