# SPDX-License-Identifier: Apache-2.0
"""The wheel and the source distribution of the Python package. The wheel has libmuster and its
programs in muster/native/: for any Slurm, without root and without the plugin. They are built here
by configure and make, and need jansson's and xxhash's headers; libjansson goes into the wheel."""

import os
import pathlib
import platform
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

TOP = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r"AC_INIT\(\[muster\], \[(.*?)\]\)", (TOP / "configure.ac").read_text())[1]
PROGRAMS = ["muster-ckptd", "muster-ckpt", "muster-curve", "muster-rdzv", "muster-where"]
# muster-report has the charts of dygraphs in it: a release's own, or Debian's libjs-dygraphs.
CHARTS = (TOP / "runs/page/dygraphs", pathlib.Path("/usr/share/javascript/dygraphs"))
if any((folder / "dygraph.min.js").exists() for folder in CHARTS):
    PROGRAMS.append("muster-report")
HELPERS = ("muster-requeue",)
# The plugin, the trainer and the GPUs are an installation's.
CONFIGURE = ("--without-slurm", "--without-cuda", "--without-dnnl", "CFLAGS=-O2 -g1")
MAKE = "LDFLAGS=-Wl,-rpath,'$$ORIGIN/../lib'"


def make_native(build):
    """Builds in the folder `build`."""
    build.mkdir(parents=True, exist_ok=True)
    if not (TOP / "configure").exists():
        subprocess.run([TOP / "autogen.sh"], cwd=TOP, check=True)
    if not (build / "Makefile").exists():
        subprocess.run([TOP / "configure", "-q", *CONFIGURE], cwd=build, check=True)
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    subprocess.run(
        ["make", "-s", jobs, MAKE, "libmuster.la", *PROGRAMS, *HELPERS], cwd=build, check=True
    )


def loaded_from(library, name):
    """The file that the dynamic loader takes for NAME, which the library needs."""
    lines = subprocess.run(["ldd", library], check=True, stdout=subprocess.PIPE, text=True).stdout
    return re.search(rf"^\s*{re.escape(name)} => (\S+)", lines, re.M)[1]


def newest_glibc(files):
    """The version of glibc that these files need: their names of its symbols say it."""
    needed = [(2, 17)]
    for file in files:
        symbols = subprocess.run(
            ["objdump", "-T", file], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        needed += [(2, int(minor)) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols)]
    return max(needed)


class Build(build_py):
    def run(self):
        super().run()
        build = pathlib.Path(self.get_finalized_command("build").build_temp, "native").resolve()
        make_native(build)
        native = pathlib.Path(self.build_lib, "muster", "native")
        library = build / ".libs" / "libmuster.so.0"
        for folder, files in (
            ("bin", [build / name for name in PROGRAMS]),
            ("libexec", [build / name for name in HELPERS]),
            ("lib", [library, pathlib.Path(loaded_from(library, "libjansson.so.4"))]),
        ):
            (native / folder).mkdir(parents=True, exist_ok=True)
            for file in files:
                shutil.copy(file, native / folder / file.name)
        terms = pathlib.Path("/usr/share/doc/libjansson4/copyright")
        if terms.exists():
            shutil.copy(terms, native / "lib" / "libjansson.copyright")
        for file in [*native.glob("bin/*"), *native.glob("lib/*.so.*")]:
            subprocess.run(["strip", "--strip-unneeded", file], check=True)


class Native(Distribution):
    """With programs for one kind of machine."""

    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    """For each Python 3."""

    def get_tag(self):
        native = pathlib.Path(self.get_finalized_command("build").build_lib, "muster", "native")
        major, minor = newest_glibc([*native.glob("bin/*"), *native.glob("lib/*.so.*")])
        return "py3", "none", f"manylinux_{major}_{minor}_{platform.machine()}"


class Source(sdist):
    """All that a build needs: the files of the repository, and configure."""

    def make_distribution(self):
        if not (TOP / "configure").exists():
            subprocess.run([TOP / "autogen.sh"], cwd=TOP, check=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=TOP, stdout=subprocess.PIPE, check=True, text=True
        ).stdout
        made = ["configure", "Makefile.in", "aclocal.m4", "config.h.in"]
        made += [str(path.relative_to(TOP)) for path in TOP.glob("build-aux/*")]
        made += [str(path.relative_to(TOP)) for path in TOP.glob("m4/*.m4")]
        self.filelist.extend([*filter(None, listed.split("\0")), *made])
        self.filelist.sort()
        self.filelist.remove_duplicates()
        super().make_distribution()


setup(
    distclass=Native,
    version=VERSION,
    options={"build": {"build_base": "build-wheel"}, "egg_info": {"egg_base": "python"}},
    cmdclass={"build_py": Build, "bdist_wheel": Wheel, "sdist": Source},
)
