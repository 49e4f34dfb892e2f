# SPDX-License-Identifier: Apache-2.0
"""Sphinx's configuration of the site. doc/site/build.sh lays out the pages that it reads."""
project = "Muster"
copyright = "the Muster authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# Names of manuals and of section numbers are no cross-references.
suppress_warnings = ["myst.header"]
html_theme = "furo"
html_title = "Muster"
html_static_path = []
html_show_sphinx = False
html_copy_source = False
highlight_language = "none"
pygments_style = "default"
